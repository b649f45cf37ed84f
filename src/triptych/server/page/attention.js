// Where the model looked: a veil over the reference that is thin where it read most, and a mark on each word.

import { make } from "./dom.js";
import { draw, nameOf } from "./pictures.js";

const THIRDS = [["upper left", "upper middle", "upper right"], ["left", "middle", "right"], ["lower left", "lower middle", "lower right"]];

/** Say in words which part of the picture was read most. */
export function region(regions) {
  const side = regions.length;
  const all = regions.flat();
  if (!all.length) return "";
  const most = Math.max(...all);
  if (most * all.length < 1.25) return "The picture was read almost evenly.";
  const at = all.indexOf(most);
  const third = (place) => Math.min(2, Math.floor((3 * (place + 0.5)) / side));
  const times = (most * all.length).toFixed(1);
  return `The ${THIRDS[third(Math.floor(at / side))][third(at % side)]} of the picture was read most, ${times} times the average.`;
}

function veil({ regions, part }) {
  const side = regions.length;
  const canvas = make("canvas", { width: side, height: side, class: "veil", "aria-hidden": "true" });
  const most = Math.max(...regions.flat());
  const context = canvas.getContext("2d");
  regions.forEach((row, y) => row.forEach((share, x) => {
    context.fillStyle = `rgb(8 12 20 / ${(0.82 * (1 - share / most)).toFixed(3)})`;
    context.fillRect(x, y, 1, 1);
  }));
  const [left, top, right, bottom] = part.map((edge) => 100 * edge);
  const place = { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` };
  for (const [name, value] of Object.entries(place)) canvas.style.setProperty(name, value);
  return canvas;
}

/** Make the panel of an answer about one picture and a text. */
export function panel(image, answer) {
  const picture = make("div", { class: "looked" }, draw(image, { alt: `Reference ${nameOf(image)}. ${region(answer.regions)}` }));
  if (answer.regions.length) picture.append(veil(answer));
  const most = Math.max(...answer.words.map((one) => one.share), 1e-9);
  const words = answer.words.map(({ word, share }) => {
    const item = make("li", {}, make("span", { class: "word" }, word), make("span", { class: "share" }, `${Math.round(100 * share)} %`));
    item.style.setProperty("--share", (share / most).toFixed(3));
    return item;
  });
  return [
    picture,
    make("div", {},
      make("p", {}, region(answer.regions)),
      make("ul", { class: "words", "aria-label": "Words and their shares" }, ...words),
      make("p", { class: "quiet" }, "Bright is what the model read most when it joined picture and text. It shows where it looked, not why.")),
  ];
}
