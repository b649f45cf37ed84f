// Where a step is written: its pictures and their weights, its text, what is not wanted.

import { byId, make } from "./dom.js";
import { draw, keep, nameOf } from "./pictures.js";
import { MAX_PICTURES, saysNothing } from "./state.js";

/** Connect the form; `on` is told what the user does: `search`, `change(draft, settings)`, `drop(images)`, `restart`. */
export class Composer {
  constructor(on) {
    this.on = on;
    this.draft = null;
    const form = byId("composer");
    form.addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    byId("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.submit(); }
    });
    for (const name of ["text", "minus"]) {
      byId(name).addEventListener("input", (event) => { this.draft[name] = event.target.value; this.changed(); });
    }
    for (const [id, name] of [["minus-weight", "minus_weight"], ["carry", "carry"], ["count", "top"]]) {
      byId(id).addEventListener("input", (event) => { this.settings[name] = Number(event.target.value); this.changed(); });
    }
    byId("file").addEventListener("change", (event) => { this.bring([...event.target.files]); event.target.value = ""; });
    byId("restart").addEventListener("click", () => on.restart());
    this.acceptDrops();
  }

  acceptDrops() {
    const over = (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      byId("drop").classList.add("over");
    };
    const leave = () => byId("drop").classList.remove("over");
    addEventListener("dragover", over);
    addEventListener("dragleave", (event) => { if (event.relatedTarget === null) leave(); });
    addEventListener("drop", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      leave();
      this.bring([...event.dataTransfer.files]);
    });
    addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length) { event.preventDefault(); this.bring(files); }
    });
  }

  async bring(files) {
    const images = [];
    for (const file of files.slice(0, MAX_PICTURES)) {
      try {
        images.push(await keep(file, this.limits));
      } catch (error) {
        this.hint(error.message);
      }
    }
    if (images.length) this.on.drop(images);
  }

  submit() {
    if (saysNothing(this.draft)) {
      this.hint("Choose a picture, or say what to find.");
      byId("text").focus();
      return;
    }
    this.on.search();
  }

  hint(text) {
    byId("hint").textContent = text;
  }

  changed() {
    this.hint("");
    this.figures();
    this.on.change(this.draft, this.settings);
  }

  /** Show a state's draft. */
  show(state) {
    this.draft = structuredClone(state.draft);
    this.settings = { ...state.settings };
    this.hint("");
    byId("text").value = this.draft.text;
    byId("minus").value = this.draft.minus;
    byId("minus-weight").value = this.settings.minus_weight;
    byId("carry").value = this.settings.carry;
    byId("count").value = String(this.settings.top);
    if (this.draft.minus) byId("more").open = true;
    byId("carry").closest(".field").hidden = state.at === 0;
    byId("restart").hidden = !state.turns.length && saysNothing(this.draft) && !this.draft.minus;
    const some = this.draft.images.length > 0;
    byId("text-label").textContent = some ? "What should change?" : "What are you looking for?";
    byId("text").placeholder = some ? "make it red, with long sleeves" : "a red dress with long sleeves";
    byId("drop").classList.toggle("slim", some);
    byId("drop").querySelector("strong").textContent = some ? "Choose another picture" : "Choose a picture";
    byId("references").replaceChildren(...this.draft.images.map((image, place) => this.card(image, place)));
    this.figures();
  }

  figures() {
    byId("minus-weight-value").textContent = this.settings.minus_weight.toFixed(1);
    byId("carry-value").textContent = this.settings.carry.toFixed(1);
  }

  card(image, place) {
    const remove = make("button", {
      type: "button", class: "icon remove", "aria-label": `Remove the reference ${nameOf(image)}`, title: "Remove",
      on: { click: () => { this.draft.images.splice(place, 1); this.changed(); this.on.removed(); } },
    }, "×");
    const card = make("figure", { class: "reference" }, draw(image, { alt: `Reference ${nameOf(image)}` }), remove);
    if (this.draft.images.length > 1) {
      const value = make("output", {}, image.weight.toFixed(1));
      card.append(make("label", { class: "weight" }, make("span", {}, "Weight"), make("input", {
        type: "range", min: "0.1", max: "3", step: "0.1", value: String(image.weight), "aria-label": `Weight of ${nameOf(image)}`,
        on: { input: (event) => { image.weight = Number(event.target.value); value.textContent = image.weight.toFixed(1); this.changed(); } },
      }), value));
    } else {
      card.append(make("figcaption", { title: nameOf(image) }, nameOf(image)));
    }
    return card;
  }
}
