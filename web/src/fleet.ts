/** Shows all nodes of a fleet, live: a map of racks, the extremes, and one node with its history. */

import { get } from "./dom";
import { ExtremesList } from "./fleet_list";
import { RackMap } from "./fleet_map";
import { NodeView } from "./fleet_node";
import type { Change, Layout } from "./fleet_types";
import { FleetState, shown } from "./fleet_types";

class Page {
  private state = new FleetState();
  private map = new RackMap(get("racks"), this.state);
  private list = new ExtremesList(this.state);
  private node = new NodeView(this.state);
  private source: EventSource | null = null;
  private hovered = -1;

  constructor() {
    get<HTMLSelectElement>("metric").addEventListener("change", () => this.open());
    this.map.onHover = (number) => {
      this.hovered = number;
      this.tell();
    };
    const choose = (number: number) => {
      this.node.choose(number);
      this.map.select(number);
    };
    this.map.onChosen = choose;
    this.list.onChosen = (number) => {
      choose(number);
      get("node-head").focus();
    };
    this.open();
  }

  /** Opens a stream of the selected metric, and closes the previous one. */
  private open(): void {
    this.source?.close();
    this.state.metric = get<HTMLSelectElement>("metric").value;
    const source = new EventSource(`api/live?metric=${encodeURIComponent(this.state.metric)}`);
    this.source = source;
    let first = true; // a stream begins with the values of all nodes, also after the browser has reconnected
    source.onopen = () => (first = true);
    source.addEventListener("layout", (e) => {
      const layout = JSON.parse((e as MessageEvent<string>).data) as Layout;
      this.state.lay(layout);
      this.metrics(layout);
      this.map.lay(layout);
      document.title = `Fleet ${layout.cluster} – Meshmark`;
    });
    source.addEventListener("change", (e) => {
      const change = JSON.parse((e as MessageEvent<string>).data) as Change;
      this.state.take(change, first);
      this.map.draw(first ? null : change.nodes);
      first = false;
      this.show(change);
    });
    source.onerror = () => this.say(source.readyState === EventSource.CLOSED ? "the server is gone" : "reconnecting");
  }

  private metrics(layout: Layout): void {
    const select = get<HTMLSelectElement>("metric");
    const names = new Set(Array.from(select.options, (o) => o.value));
    if (layout.metrics.every((m) => names.has(m.name))) return;
    select.replaceChildren(new Option("state", ""), ...layout.metrics.map((m) => new Option(m.name, m.name)));
    select.value = this.state.metric;
  }

  private show(change: Change): void {
    const { counts } = change;
    const total = this.state.names.length;
    const cases = counts["named"]! + counts["wrong"]!;
    const parts = [`${(counts["live"]! + cases).toLocaleString("en")} of ${total.toLocaleString("en")} nodes report`];
    if (counts["silent"]) parts.push(`${counts["silent"].toLocaleString("en")} no longer`);
    if (counts["never"]) parts.push(`${counts["never"].toLocaleString("en")} have not reported`);
    if (cases) parts.push(`${cases.toLocaleString("en")} with open cases`);
    this.say(parts.join(", "));
    this.list.show();
    this.node.refresh(change.nodes);
    this.tell();
    this.refused(change.refused);
    (window as { meshmarkAt?: number }).meshmarkAt = change.at; // for programs that measure the page
  }

  private say(text: string): void {
    if (get("state").textContent !== text) get("state").textContent = text;
  }

  private tell(): void {
    if (this.hovered < 0) return;
    const number = this.hovered;
    const value = this.state.metric && this.state.valueOf(number);
    const what = this.state.metric ? `; ${this.state.metric}: ${value === null ? "not known" : shown(this.state, value as number)}` : "";
    const text = `${this.state.names[number]}: ${this.state.textOf(number)}${what}`;
    if (get("told").textContent !== text) get("told").textContent = text;
  }

  private refused(found: Record<string, string>): void {
    const place = get("refused");
    const key = JSON.stringify(found);
    if (place.dataset["key"] === key) return;
    place.dataset["key"] = key;
    const rows = Object.entries(found);
    place.hidden = rows.length === 0;
    place.querySelector("ul")!.replaceChildren(
      ...rows.map(([name, why]) => Object.assign(document.createElement("li"), { textContent: `${name}: ${why}` })),
    );
  }
}

new Page();
