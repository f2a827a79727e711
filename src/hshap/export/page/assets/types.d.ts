/* The data of the page, and the objects that its modules share. Python writes the first part:
   export/page/tables.py and writing.py. The modules share one scope and need no imports. */

type Box = number[]; // first plane, row and column, then one past the last
type Labels = Uint8Array | Uint16Array | Uint32Array;
/** The map of all contexts, or a side of the answer: enough alone, or cannot be missing. */
type Side = "both" | "alone" | "missing";

/** A map as signed bytes, the root of each value: 127 is that of `top`. */
interface PackedMap {
  top: number;
  values: string;
}

interface ClassTable {
  name: string;
  identity: string;
  text: string;
  audit: string;
  sure: string;
  why: string;
  missed: string;
  concerns: string[];
  score: number | null;
  baseline: number | null;
  probability: number | null;
  grid: number[];
  labels: string; // the cell at each pixel: the number of its finest region, or of an extra piece
  pieces: number[]; // the region of each extra piece, which have the numbers after all regions
  parents: number[]; // of each region, -1 for the whole image
  strengths: (number | null)[];
  errors: (number | null)[];
  shares: (number | null)[]; // of the score
  free: number[]; // regions that are one object, also in several pieces
  leaves: number[];
  adds: boolean; // whether findings are scored by their share, and not by their strongest leaf
  limits: { run: number; least: number[]; most: number[] } | null; // a leaf from least to below most
  map: PackedMap | null; // attribution(); null for large images, and where it is 0 everywhere
  sides: Record<"alone" | "missing", PackedMap | null> | null; // attribution(context=...)
  marked: string | null; // the area that keeps the promise of a calibration, as labels 0 and 1
}

interface ImageTable {
  kind: "colour" | "grey";
  bits: number;
  low: number;
  step: number;
  high: number;
  window: [number, number];
  levels: number[][];
  complete?: number; // large images: the finest level that has all its tiles
  present?: string[]; // large images: tiles of finer levels that are there, as level-row-column
}

/** The polygons of a finding inside a tile of a large image: x and y in turns, in its pixels. */
type Mark = number[][];

interface ViewTable {
  name: string;
  size: number[]; // of the image that is shown: the grid's, or the original image's
  original: boolean; // whether the original image is shown
  place: { shape: number[]; start: number[]; stop: number[] };
  truth: string | null;
  classes: ClassTable[];
  image: ImageTable;
  marks?: Mark[][]; // large images: for each class
  pixelSize: number[] | null;
  sides: number[]; // of a pixel of the image that is shown, relative to the shortest
  letters: string; // one for each axis, such as "ZYX"; empty if no layout was given
  directions: string; // where each axis of a scan leads, such as "SPL"; empty if not known
  values: string; // the unit of the values, such as "HU"
  unit: string;
}

/** Facts of a class for the gallery. */
interface Facts {
  name: string;
  identity: string;
  score: number | null;
  probability: number | null;
  count: number;
  share: number;
  largest: number;
  overlap: number | null;
  sure: string;
  boxes: number[];
}

/** An image in the index: facts of the run as it was made. */
interface Entry {
  name: string;
  home: string; // the folder of its parts
  size: number[];
  classes: Facts[];
}

interface PageData {
  title: string;
  version: string;
  folder: string | null;
  views: Entry[];
}

/* Made by the page. */

/** A label for each pixel of a grid. */
interface Labelled {
  grid: number[];
  labels: Labels;
}

interface PixelMap {
  top: number;
  values: Int8Array;
  hasNegative: boolean;
}

/** A class of the open image; cells are what no region divides. */
interface Klass extends Omit<ClassTable, "labels" | "marked" | "free" | "map">, Labelled {
  maps: Partial<Record<Side, PixelMap>>;
  marked: Labelled | null;
  free: Set<number>;
  areas: Float64Array;
  boxes: Int32Array;
  neighbours: number[][];
}

interface View extends Omit<ViewTable, "classes" | "truth"> {
  number: number;
  home: string;
  axes: number;
  shown: number[]; // planes, rows and columns of the image
  classes: Klass[];
  truth: Labelled | null;
}

interface Finding {
  cells: number[];
  box: Box; // on the grid
  at: Box; // in the original image
  score: number;
  part: number | null; // of the score over that of the baseline
  area: number;
  key: string;
}

interface Result {
  leaves: Set<number>;
  leafOf: Int32Array; // of each cell, or -1
  findings: Finding[];
  numberOf: Int32Array; // the finding of each cell, or -1
  share: number;
  overlap: number | null;
}

/** A picture, or one plane of a volume: the axis across it, and its place along that axis. */
interface Plane {
  axis: number;
  at: number;
  flipped: boolean; // rows run against their axis, so that the head of a patient is up
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

interface Source {
  draw(context: CanvasRenderingContext2D, plane: Plane, camera: CameraState, window: number[]): void;
  valueAt(place: number[]): number | null;
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

/** All that is painted over the image of a panel. */
interface Scene {
  view: View;
  klass: Klass;
  result: Result;
  look: State;
  map: PixelMap | null;
  top: number; // of the maps of all panels
  hasNegative: boolean;
  plane: Plane;
  camera: CameraState;
  width: number;
  height: number;
  thick: number;
  hover: number | null;
  finding: number;
}

interface Opened {
  view: View;
  source: Source;
  results: Result[];
  panels: Panel[];
  cameras: Camera[];
}

interface Card {
  number: number;
  element: HTMLElement;
  canvas: HTMLCanvasElement;
  lines: HTMLElement;
  isNear: boolean;
  facts: Facts[];
}

type Layer = "map" | "leaves" | "boxes" | "truth" | "checked";

interface Review {
  verdict: "accepted" | "rejected" | null;
  note: string;
  start: number[];
  stop: number[];
  strength: number;
  tolerance: number | null;
}

interface State {
  number: number | null; // the image that is shown; null is the gallery
  tolerance: number | null; // the strength that a finding must have; null is the run's own
  layers: Record<Layer, boolean>;
  hidden: boolean; // whether everything over the image is hidden
  opacity: number;
  colours: string;
  side: Side; // the map that is shown
  shown: number[]; // the classes that are shown
  current: number; // the class that was used last
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
