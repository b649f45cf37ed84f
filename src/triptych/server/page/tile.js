// One picture of the gallery or of the results, with what can be done with it.

import { icon, make, shown } from "./dom.js";
import { thumbnail } from "./api.js";

const FACTS = 3;
const LONG = 28;

/** The facts of an image's metadata as texts, long ones last. */
export function facts(metadata) {
  const all = Object.entries(metadata).filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => (typeof value === "string" ? value : `${name} ${shown(value)}`));
  return [...all.filter((fact) => fact.length < LONG), ...all.filter((fact) => fact.length >= LONG)];
}

/** Make a tile's content; `hit` has a score where it is a result, `actions` are more buttons. */
export function tile(hit, { onTake, onAdd, actions = [] }) {
  const said = facts(hit.metadata);
  const place = hit.rank === undefined ? "" : ` Result ${hit.rank}, score ${hit.score.toFixed(3)}.`;
  const picture = make("img", {
    src: thumbnail(hit.id), alt: "", loading: "lazy", decoding: "async", width: 256, height: 256,
    on: { error: () => picture.replaceWith(make("span", { class: "unseen" }, "picture missing")) },
  });
  const take = make("button", {
    type: "button", class: "take", title: "Take as the reference",
    "aria-label": `Take ${hit.id} as the reference.${place} ${said.slice(0, FACTS).join(", ")}`,
    on: { click: () => onTake(hit) },
  }, picture);
  const add = make("button", {
    type: "button", class: "icon add", title: "Add as one more reference", "aria-label": `Add ${hit.id} as one more reference`,
    on: { click: () => onAdd(hit) },
  }, icon("M12 5v14M5 12h14"));
  const line = make("p", { class: "name" }, make("span", { title: hit.id }, hit.id));
  line.append(hit.score === undefined ? add : make("span", { class: "score" }, hit.score.toFixed(3)));
  const parts = [take, line];
  if (hit.score !== undefined) {
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
    bar.firstChild.style.setProperty("--share", `${Math.round(100 * Math.max(0, Math.min(1, hit.score)))}%`);
    parts.push(bar);
  }
  if (said.length) parts.push(make("p", { class: "facts", title: said.join(", ") }, said.slice(0, FACTS).join(" · ")));
  if (hit.score !== undefined) parts.push(make("div", { class: "actions" }, ...actions, add));
  return parts;
}
