// A grid of which only what can be seen exists, so that 20,000 pictures scroll as 20 do.

import { make } from "./dom.js";

const GAP = 14;
const SMALLEST = 150;
const ROWS_AROUND = 2;
const TALLEST = 15_000_000; // pixels; browsers stop laying out not far above

export class Grid {
  /** `list` is a <ul>; its tiles are placed by hand, at the width of the list. */
  constructor(list) {
    this.list = list;
    this.tiles = new Map(); // place -> <li>
    this.source = { count: 0, get: () => undefined, want: () => {} };
    this.current = 0; // the tile that Tab reaches
    this.wanted = null; // the tile that gets the focus once it is there
    let waiting = false;
    const soon = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; this.render(); });
    };
    addEventListener("scroll", soon, { passive: true });
    new ResizeObserver(() => { this.measure(); soon(); }).observe(list);
    list.addEventListener("keydown", (event) => this.onKey(event));
    list.addEventListener("focusin", (event) => this.onFocus(event));
  }

  /** Show `count` items: `get(place)` gives a tile's content or undefined, `want(first, last)` asks for what is missing. */
  show(source, { below }) {
    this.source = source;
    this.below = below;
    this.current = 0;
    this.wanted = null;
    this.list.replaceChildren();
    this.tiles.clear();
    this.measure();
    this.render();
  }

  /** Fill tiles whose items have come. */
  refresh() {
    for (const [place, tile] of this.tiles) {
      if (tile.classList.contains("awaited")) this.fill(tile, place);
    }
    if (this.wanted !== null) this.focus(this.wanted);
  }

  measure() {
    const width = this.list.clientWidth;
    this.columns = Math.max(2, Math.floor((width + GAP) / (SMALLEST + GAP + (width > 900 ? 30 : 0))));
    this.width = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.height = this.width + this.below + GAP;
    this.count = Math.min(this.source.count, Math.floor(TALLEST / Math.max(1, this.height)) * this.columns);
    const rows = Math.ceil(this.count / this.columns);
    this.list.style.setProperty("height", `${Math.max(0, rows * this.height - GAP)}px`);
    this.list.style.setProperty("--tile", `${this.width}px`);
    this.list.style.setProperty("--below", `${this.below}px`);
    for (const [place, tile] of this.tiles) this.put(tile, place);
  }

  render() {
    if (!this.count) return;
    const top = this.list.getBoundingClientRect().top;
    const row = (y) => Math.floor(y / this.height);
    const first = Math.max(0, row(-top) - ROWS_AROUND) * this.columns;
    const last = Math.min(this.count - 1, (row(innerHeight - top) + 1 + ROWS_AROUND) * this.columns - 1);
    for (const [place, tile] of this.tiles) {
      if ((place < first || place > last) && !tile.contains(document.activeElement)) {
        tile.remove();
        this.tiles.delete(place);
      }
    }
    if (last < first) return;
    if (!this.list.contains(document.activeElement) && (this.current < first || this.current > last)) {
      this.current = Math.min(last, Math.max(0, row(-top) + 1) * this.columns);
    }
    let missing = false;
    for (let place = first; place <= last; place += 1) {
      if (!this.tiles.has(place)) this.add(place);
      missing ||= this.tiles.get(place).classList.contains("awaited");
    }
    this.markCurrent();
    if (missing) this.source.want(first, last);
  }

  add(place) {
    const tile = make("li", { class: "tile", "data-place": place, "aria-setsize": this.source.count, "aria-posinset": place + 1 });
    this.put(tile, place);
    this.fill(tile, place);
    this.tiles.set(place, tile);
    const after = [...this.tiles.keys()].filter((other) => other > place); // in reading order, for screen readers
    this.list.insertBefore(tile, after.length ? this.tiles.get(Math.min(...after)) : null);
  }

  put(tile, place) {
    const x = (place % this.columns) * (this.width + GAP);
    const y = Math.floor(place / this.columns) * this.height;
    tile.style.setProperty("transform", `translate(${x}px, ${y}px)`);
  }

  fill(tile, place) {
    const content = this.source.get(place);
    tile.classList.toggle("awaited", content === undefined);
    tile.replaceChildren(...(content ?? []));
    for (const button of tile.querySelectorAll("button")) button.tabIndex = place === this.current ? 0 : -1;
  }

  markCurrent() {
    for (const [place, tile] of this.tiles) {
      for (const button of tile.querySelectorAll("button")) button.tabIndex = place === this.current ? 0 : -1;
    }
  }

  onFocus(event) {
    const place = Number(event.target.closest("li")?.dataset.place);
    if (Number.isInteger(place) && place !== this.current) {
      this.current = place;
      this.markCurrent();
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    let to = event.key in steps ? this.current + steps[event.key] : null;
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = this.count - 1;
    if (to === null || to < 0 || to >= this.count) return;
    event.preventDefault();
    this.focus(to);
  }

  /** Bring a tile into sight and give it the focus, now or when its item has come. */
  focus(place) {
    const top = this.list.getBoundingClientRect().top + Math.floor(place / this.columns) * this.height;
    if (top < 0 || top + this.height > innerHeight) scrollBy({ top: top - innerHeight / 3, behavior: "instant" });
    this.current = place;
    this.render();
    const button = this.tiles.get(place)?.querySelector("button");
    this.wanted = button ? null : place;
    button?.focus({ preventScroll: true });
  }
}
