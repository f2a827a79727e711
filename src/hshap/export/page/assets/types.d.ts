/* The data of the page, and the objects that its modules share. Python writes the first part:
   export/page/tables.py, first_line.py and writing.py. */

type Box = number[]; // first row and column (volumes: plane, row, column), then one past the last

interface Game {
  region: number;
  parts: number[];
  phi: number[];
  errors: (number | null)[] | null;
  total: number;
  alone: number[];
  ends: boolean;
  values: number[] | null;
  worth?: number[]; // of group tests: parts are kept by this, and not by phi
  inferred?: boolean;
}

/** A map as signed bytes: 127 is `top`. */
interface PackedMap {
  top: number;
  values: string;
}

/** A side of the answer: enough alone, or cannot be missing. */
type Side = "alone" | "missing";

interface ClassTable {
  name: string;
  identity: string;
  cells: number[];
  text: string;
  audit: string;
  sure: string;
  why: string;
  missed: string;
  concerns: string[];
  score: number | null;
  baseline: number | null;
  search: { by: "tolerance" | "percentile"; least: number; keepWhole: boolean } | null;
  measure: "side" | "area";
  finest: number;
  sizes: number[];
  sides: number[];
  games: Game[];
  leaves: number[];
  shares: (number | null)[] | null; // of the leaves; null where findings are scored by coefficients
  unfinished: number[];
  map: PackedMap | null; // attribution(); null if it is 0 everywhere
  contexts: Record<Side, PackedMap | null> | null; // attribution(context=...); null for runs without contexts
  marked: number[] | null; // 1 for cells of the area that keeps the promise of a calibration
}

interface ImageTable {
  kind: "colour" | "grey";
  bits: number;
  low: number;
  step: number;
  window: [number, number];
  levels: number[][];
  complete?: number; // large images: the finest level that has all its tiles
  present?: string[]; // large images: tiles of finer levels that are there, as level-row-column
}

/** A finding inside a tile of a large image. */
interface Mark {
  strength: number;
  rings: number[][]; // x and y in turns, in pixels of the image
}

interface ViewTable {
  name: string;
  grid: number[];
  size: number[]; // of the image that is shown: the grid's, or the original image's
  original: boolean; // whether the original image is shown
  place: {
    shape: number[];
    start: number[];
    stop: number[];
    edges: number[][] | null; // positions of all lines, where explanations differ in size
  };
  areas: number[];
  boxes: number[];
  neighbours: number[];
  repeats: number[][];
  truth: number[] | null;
  classes: ClassTable[];
  runs: string;
  image: ImageTable;
  marks?: Mark[][]; // large images: for each class
  pixelSize: number[] | null;
  sides: number[]; // of a pixel of the image that is shown, relative to the shortest
  letters: string; // one for each axis, such as "ZYX"; empty if no layout was given
  unit: string;
}

/** An image in the index: facts of the run as it was made. */
interface Entry {
  name: string;
  home: string; // the folder of its parts
  size: number[];
  classes: {
    name: string;
    identity: string;
    score: number | null;
    count: number;
    share: number;
    largest: number;
    overlap: number | null;
    sure: string;
    unfinished: number;
    boxes: number[];
  }[];
}

interface PageData {
  title: string;
  version: string;
  folder: string | null;
  views: Entry[];
}

/* Made by the page. */

interface Tree extends ClassTable {
  root: number;
  gameOf: (Game | null)[];
  parent: Int32Array;
  weight: Float64Array;
  strength: Float64Array;
  error: Float64Array;
}

interface View extends ViewTable {
  number: number;
  home: string;
  axes: number;
  depth: number; // of the grid
  height: number;
  width: number;
  shown: number[]; // planes, rows and columns of the image
  trees: Tree[];
}

interface Asked {
  tolerance: number | null;
  percentile: number | null;
  side: number | null;
  area: number | null;
}

interface Finding {
  cells: number[];
  box: Box; // on the grid
  at: Box; // in the original image
  score: number;
  area: number;
  key: string;
}

interface Result {
  leaves: number[];
  leafOf: Int32Array;
  findings: Finding[];
  findingOf: Int32Array;
  largest: number;
  holds: Uint8Array;
  share: number;
  overlap: number | null;
}

/** The map of cells: the runs of each line, up to column `ends`, and the line of each row. */
interface CellMap {
  first: Uint32Array;
  ends: Uint32Array;
  cells: Uint32Array;
  lineOf: Uint32Array;
}

/** The attribution of each pixel of the grid, in steps: 127 is `top`. */
interface PixelMap {
  top: number;
  values: Int8Array;
}

/** The maps of a class: of all contexts, and of each side for a run that has them. */
interface ClassMaps extends Partial<Record<Side, PixelMap>> {
  all: PixelMap | null;
}

/** A picture, or one plane of a volume: the axis across it, and its place along that axis. */
interface Plane {
  axis: number;
  at: number;
  rows: number;
  columns: number;
}

/** Shows the plane from (x, y) on, each pixel `scale` pixels of the screen wide. */
interface CameraState {
  x: number;
  y: number;
  scale: number;
  ratio: number;
}

interface Camera {
  camera: CameraState;
  fit(to?: Box, margin?: number): void;
  resize(width: number, height: number, plane: Plane, ratio: number): void;
  move(dx: number, dy: number): void;
  centre(row: number, column: number): void;
  zoom(factor: number, atX?: number, atY?: number): void;
  pixel(atX?: number, atY?: number): [number, number] | null;
}

interface Seen {
  under: Int32Array;
  edges: Int32Array;
  width: number;
  height: number;
  thick: number;
}

interface Outline {
  groups: Int32Array;
  inside: number | Uint32Array;
  outside: number;
  dashed: boolean;
}

interface Source {
  draw(context: CanvasRenderingContext2D, plane: Plane, camera: CameraState, window: number[]): void;
  valueAt(place: number[]): number | null;
  sample(): Uint8ClampedArray | null;
  ready: Promise<void>;
  close(): void;
}

interface Panel {
  klass: number;
  axis: number;
  element: HTMLElement;
  image: HTMLCanvasElement;
  overlay: HTMLCanvasElement;
  screen: HTMLElement;
  caption: HTMLElement;
}

interface Slider {
  key: keyof Asked;
  label: string;
  python: string;
  low: number;
  most: number;
  step: number | "any";
  at(place: number): number;
  place(value: number): number;
  range?: HTMLInputElement;
  box?: HTMLInputElement;
  typing?: boolean;
}

type Layer = "map" | "heat" | "leaves" | "boxes" | "truth" | "visited";

interface Review {
  verdict: "accepted" | "rejected" | null;
  note: string;
  box: Box;
  strength: number;
  asked: Asked;
}

interface State {
  number: number | null; // the image that is shown; null is the gallery
  asked: Asked;
  layers: Record<Layer, boolean>;
  hidden: boolean; // whether everything over the image is hidden
  opacity: number;
  map: string; // the colours of regions
  pixelMap: string; // and those of the map of pixels
  context: keyof ClassMaps; // the map of pixels that is shown
  shown: number[]; // the classes that are shown
  current: number; // the class that was used last
  focus: number | null; // region of the current class whose areas are shown
  hover: number | null; // region of the current class under the pointer
  finding: number;
  at: number[]; // the place where the planes of a volume meet
  window: number[]; // the grey values that are black and white
  said: string | null; // the status line after an action; null is empty
}

interface Window {
  hshapPart(name: string, text: string): void;
  hshap: unknown;
}

interface Uint8ArrayConstructor {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}
