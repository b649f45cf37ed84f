// The pictures that the user brought: kept in memory, drawn on a canvas, never given an address.

import { make } from "./dom.js";
import { thumbnail } from "./api.js";

const SIDE = 512;
const kept = new Map(); // key -> { file, bitmap }
let number = 0;

/** Keep a file; throws where the browser cannot read it and the server would not either. */
export async function keep(file, limits) {
  if (limits && file.size > limits.upload_bytes) {
    const most = (limits.upload_bytes / 2 ** 20).toFixed(1);
    throw new Error(`${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MiB; the server takes ${most} MiB at most.`);
  }
  let bitmap = null;
  try {
    bitmap = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
    if (scale < 1) {
      const size = { resizeWidth: Math.max(1, Math.round(bitmap.width * scale)), resizeHeight: Math.max(1, Math.round(bitmap.height * scale)) };
      const small = await createImageBitmap(bitmap, { ...size, resizeQuality: "medium" });
      bitmap.close();
      bitmap = small;
    }
  } catch {
    bitmap = null; // a TIFF, say: the server may read it, or says why not
  }
  number += 1;
  const key = `file-${number}`;
  kept.set(key, { file, bitmap });
  return { file: key, name: file.name, weight: 1 };
}

export const fileOf = (image) => kept.get(image.file)?.file;
export const isLost = (image) => image.file !== undefined && !kept.has(image.file);
export const nameOf = (image) => image.id ?? image.name;

/** Draw a picture: an image of the gallery by its address, a file of the user on a canvas. */
export function draw(image, { alt = nameOf(image), lazy = false } = {}) {
  if (image.id !== undefined) {
    return make("img", { src: thumbnail(image.id), alt, loading: lazy ? "lazy" : "eager", decoding: "async", width: 256, height: 256 });
  }
  const bitmap = kept.get(image.file)?.bitmap;
  if (!bitmap) return make("span", { class: "unseen", role: "img", "aria-label": alt }, "no preview");
  const canvas = make("canvas", { width: bitmap.width, height: bitmap.height, role: "img", "aria-label": alt });
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  return canvas;
}
