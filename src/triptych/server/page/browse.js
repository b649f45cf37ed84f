// The gallery without a query: pages of it, asked for when they come into sight.

import { askImages } from "./api.js";
import { settled } from "./dom.js";

const PAGE = 60;

export class Browse {
  /** `make(image)` gives a tile's content, `onCome` is called when a page is there, `onFail` with a problem. */
  constructor({ make, onCome, onFail }) {
    this.make = make;
    this.onCome = onCome;
    this.onFail = onFail;
    this.want = settled((first, last) => this.load(first, last), 40);
    this.stop = new AbortController();
  }

  /** Ask for the first page of what passes a filter; returns how many images there are. */
  async open(where, signal) {
    this.stop.abort();
    const page = await askImages({ skip: 0, limit: PAGE, where }, signal);
    this.stop = new AbortController();
    this.where = where;
    this.asked = new Set([0]);
    this.images = new Map(page.images.map((image, place) => [place, image]));
    this.count = page.total;
    return page;
  }

  get(place) {
    const image = this.images.get(place);
    return image && this.make(image);
  }

  async load(first, last) {
    const { images, asked, stop, where } = this;
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      if (asked.has(page)) continue;
      asked.add(page);
      askImages({ skip: page * PAGE, limit: PAGE, where }, stop.signal).then((found) => {
        found.images.forEach((image, place) => images.set(page * PAGE + place, image));
        if (!stop.signal.aborted) this.onCome();
      }).catch((error) => {
        asked.delete(page);
        if (error.name !== "AbortError") this.onFail(error);
      });
    }
  }
}
