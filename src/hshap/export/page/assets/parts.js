/* The data of the page, in parts: elements of this file, or files in the folder beside it. */

import { byId } from "./dom.js";
import { makeTree } from "./findings.js";

/** @type {PageData} */
export const data = JSON.parse(byId("data").textContent);

/** Parts that came with a file and wait to be used.
    @type {Map<string, string>} */
const held = new Map();
window.hshapPart = (name, text) => held.set(name, text);

/** Load a file beside the page. Scripts are the only files that a page without a server can read.
    @param {string} file
    @returns {Promise<void>} */
function loadFile(file) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${encodeURIComponent(data.folder ?? "")}/${file}.js`;
    script.onload = () => { script.remove(); resolve(); };
    script.onerror = () => {
      script.remove();
      reject(new Error(`${data.folder}/${file}.js is missing; if the page was made again, load it again, else keep the folder ${data.folder} beside it`));
    };
    document.head.append(script);
  });
}

/** The text of a part; `file` is the file that has it, if not one of its own.
    @param {string} name
    @param {string} [file]
    @returns {Promise<string>} */
async function textOf(name, file = name) {
  if (data.folder === null) return byId(name).textContent;
  if (!held.has(name)) await loadFile(file);
  const text = held.get(name);
  held.delete(name);
  if (text === undefined) throw new Error(`${data.folder}/${file}.js has no ${name}`);
  return text;
}

/** @param {string} text
    @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const plain = atob(text);
  const bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

/** The bytes of a part.
    @param {string} name */
export const bytesOf = async (name) => fromBase64(await textOf(name));

/** Unpack what zlib packed.
    @param {Uint8Array<ArrayBuffer>} bytes
    @returns {Promise<ArrayBuffer>} */
export function unpacked(bytes) {
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(plain).arrayBuffer();
}

/** The first part of the names of an image's parts.
    @param {number} number */
const homeOf = (number) => data.views[number].home;

/** Forget parts of an image that came with its file and were not used.
    @param {number} number */
export function forgetParts(number) {
  for (const name of held.keys()) if (name.startsWith(`${homeOf(number)}/`)) held.delete(name);
}

/** The data of an image.
    @param {number} number
    @returns {Promise<View>} */
export async function loadView(number) {
  /** @type {ViewTable} */
  const table = JSON.parse(await textOf(`${homeOf(number)}/view`));
  const [width, height, depth = 1] = [...table.grid].reverse();
  return {
    ...table, number, home: homeOf(number), axes: table.grid.length, depth, height, width,
    shown: [1, ...table.size].slice(-3), trees: table.classes.map(makeTree),
  };
}

/** The small picture of an image.
    @param {number} number */
export const loadThumb = async (number) =>
  createImageBitmap(new Blob([fromBase64(await textOf(`${homeOf(number)}/thumb`))], { type: "image/png" }));
