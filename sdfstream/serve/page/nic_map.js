// The map of the NICs: a column a host, a row a rail; hosts that do not fit beside each other go on below.
import { html, useMemo, useRef } from './lib.js';
import { CanvasGrid, useWidth } from './canvas_grid.js';
import { stale } from './freshness.js';
import { natural } from './format.js';
import { go } from './route.js';
import { draw, shown } from './states.js';
import { useStore } from './store.js';

const LEFT = 44;
const SIZE = 18;
const SMALL = 12; // where there are many NICs

export function NicMap({ nics }) {
  const box = useRef(null);
  const width = useWidth(box);
  const isStale = useStore(stale);
  const size = nics.length > 1500 ? SMALL : SIZE;
  const map = useMemo(() => layout(nics, Math.max(1, Math.floor((width - LEFT - 2) / size)), size), [nics, width, size]);
  return html`<div ref=${box} class="map">${width > 0 && html`<${CanvasGrid} name="NICs by host and rail" ...${map}
    size=${size} left=${LEFT} version=${isStale}
    paint=${(pen, cell, side, palette) => draw(pen, shown(cell.nic.state, isStale), 0, 0, side, palette)}
    describe=${({ nic }) => `${nic.nic}: ${shown(nic.state, isStale)}, sends ${shown(nic.tx, isStale)}, receives ${shown(nic.rx, isStale)}, port ${nic.port}${nic.why ? `; ${nic.why}` : ''}`}
    open=${({ nic }) => go('rack', nic.nic)} />`}</div>`;
}

// Cells and labels: blocks of hosts, each with a row for every rail and an empty row below.
export function layout(nics, across, size) {
  const rails = [...new Set(nics.map(railOf))].sort(natural);
  const hosts = [...new Set(nics.map((nic) => nic.host))].sort(natural);
  const [rowOf, hostAt] = [rails, hosts].map((names) => new Map(names.map((name, i) => [name, i])));
  const block = rails.length + 1;
  const cells = nics.map((nic) => {
    const h = hostAt.get(nic.host);
    return { x: h % across, y: Math.floor(h / across) * block + 1 + rowOf.get(railOf(nic)), nic };
  });
  const blocks = Math.ceil(hosts.length / across);
  const labels = [];
  for (let b = 0; b < blocks; b += 1) {
    const last = Math.min(hosts.length, (b + 1) * across) - 1;
    const top = b * block * size;
    labels.push({ x: LEFT, y: top + size / 2, text: `${hosts[b * across]} … ${hosts[last]}` });
    rails.forEach((rail, r) => labels.push({ x: LEFT - 6, y: top + (r + 1.5) * size, text: short(rail), right: true }));
  }
  return { cells, labels, columns: Math.min(across, hosts.length || 1), rows: blocks * block };
}

// As declared, else as the NIC is called on its host.
function railOf(nic) {
  return nic.rail === null ? nic.nic.slice(nic.host.length + 1) : `rail ${nic.rail}`;
}

function short(text) {
  return text.length > 7 ? `${text.slice(0, 6)}…` : text;
}
