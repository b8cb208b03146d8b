// A map of paths: a row a sender, a column a receiver, darker is more; what is not known is a hollow square.
import { html, useMemo } from './lib.js';
import { CanvasGrid } from './canvas_grid.js';
import { useList } from './data.js';
import { stale } from './freshness.js';
import { duration, natural, share, time } from './format.js';
import { useHistory } from './history.js';
import { Choice, Notice } from './icons.js';
import { byNearness } from './order.js';
import { change, go, route } from './route.js';
import { draw } from './states.js';
import { useStore } from './store.js';

const FIGURES = { owd: 'one-way delay', excess: 'delay over the floor', loss: 'loss', ce: 'CE marks' };
const PERCENTILES = { 50: 'median', 90: '90th percentile', 99: '99th percentile', 100: 'worst' };
const WINDOWS = { '': 'last seconds', 60: 'last minute', 600: 'last 10 min', 3600: 'last hour', 86400: 'last 24 h' };
const SCALE = ['#fde725', '#b5de2b', '#6ece58', '#35b779', '#1f9e89', '#26828e', '#31688e', '#3e4989', '#482878', '#440154'];
// viridis: even in lightness, the same to colour-blind eyes; darker is worse
const LEFT = 60;
const TOP = 18;

export function Heat() {
  const { figure = 'owd', percentile = '50', order = 'near', window = '' } = useStore(route).query;
  const asked = { figure: figure === 'owd' ? undefined : figure, percentile: percentile === '50' ? undefined : percentile };
  const now = useList(window ? null : 'cells', asked, { everyMs: 5000 });
  const then = useHistory(window ? { cells: figure, percentile, span_s: window } : null);
  const found = window ? { ...then, items: rowsOf(then.items) } : now;
  const isStale = useStore(stale);
  const map = useMemo(() => layout(found.items, order), [window ? then.items : now.items, order]);
  const text = (value) => (figure === 'loss' || figure === 'ce' ? share(value) : duration(value));
  const by = found.items[0]?.by || found.head?.by;
  return html`<section aria-labelledby="heat">
    <h2 id="heat">Paths by ${by || 'host'}: ${FIGURES[figure] || figure}</h2>
    <p class="choices">
      <${Choice} label="Figure" value=${figure} of=${FIGURES} set=${(value) => change({ figure: value })} />
      <${Choice} label="Percentile" value=${percentile} of=${PERCENTILES} set=${(value) => change({ percentile: value })} />
      <${Choice} label="Window" value=${window} of=${WINDOWS} set=${(value) => change({ window: value })} />
      <${Choice} label="Order" value=${order} of=${{ near: 'near ones together', name: 'by name' }} set=${(value) => change({ order: value })} />
    </p>
    <${Notice} of=${found} nothing="No path is known yet." />
    ${map.cells.length > 0 && html`
      <div class="scroll" tabindex="0" role="region" aria-label="Map of paths">
      <${CanvasGrid} name=${`${FIGURES[figure]} from row to column`} ...${map} size=${map.size} left=${LEFT} top=${TOP} version=${`${isStale}${figure}${window}`}
        paint=${(pen, cell, size, palette) => paintCell(pen, cell, size, palette, map, isStale)}
        describe=${(cell) => `${cell.src} to ${cell.dst}: ${known(cell, isStale) ? text(cell.value) : 'unknown'}; ${cell.measured} of ${cell.paths} paths measured${cell.lost ? `, ${cell.lost} lost` : ''}`}
        open=${(cell) => (by === 'leaf' ? go('rack', cell.src) : go('pair', [cell.src, cell.dst]))} /></div>
      <p class="legend"><span>${text(map.least)}</span>${SCALE.map((_, i) => html`<span class=${`swatch s${i}`}></span>`)}<span>${text(map.most)}</span>
        <span>□ unknown</span><span>✖ lost</span>
        <span>over ${window ? `the ${WINDOWS[window]} up to ${time(found.head?.ends_at_ns)}` : 'the last seconds (half-life 3 s)'}, ${PERCENTILES[percentile] || `${percentile}th percentile`} of a cell's paths</span>
        ${found.items[0]?.left_out > 0 && html`<span>${found.items[0].left_out} more are not shown</span>`}</p>`}
  </section>`;
}

// Cells of a stretch as the rows that the list of now has.
export function rowsOf(cells) {
  const rows = new Map();
  for (const cell of cells) {
    if (!rows.has(cell.src)) rows.set(cell.src, { src: cell.src, dst: [], values: [], floor_ns: [], paths: [], measured: [], lost: [] });
    const row = rows.get(cell.src);
    row.dst.push(cell.dst);
    row.values.push(cell.value);
    for (const name of ['floor_ns', 'paths', 'measured', 'lost']) row[name].push(cell[name]);
  }
  return [...rows.values()];
}

function known(cell, isStale) {
  return cell.value !== null && !isStale;
}

function paintCell(pen, cell, size, palette, { least, most }, isStale) {
  if (!known(cell, isStale)) return draw(pen, cell.lost && !isStale ? 'unhealthy' : 'unknown', 0, 0, size, palette);
  const step = Math.min(9, Math.floor((9.999 * (cell.value - least)) / (most - least || 1)));
  pen.fillStyle = SCALE[step];
  pen.fillRect(0.5, 0.5, size - 1, size - 1);
  if (cell.lost) draw(pen, 'unhealthy', size / 4, size / 4, size / 2, { unhealthy: step < 5 ? '#000' : '#fff' });
  return undefined;
}

export function layout(items, order) {
  const names = order === 'name' ? groups(items) : byNearness(items, groups(items));
  const at = new Map(names.map((name, i) => [name, i]));
  const cells = items.flatMap((row) => row.dst.map((dst, i) => ({
    x: at.get(dst), y: at.get(row.src), src: row.src, dst, value: row.values[i], paths: row.paths[i], measured: row.measured[i], lost: row.lost[i],
  })));
  const size = names.length > 80 ? 8 : names.length > 32 ? 12 : 20;
  const step = Math.ceil(14 / size); // of labels that do not overlap
  const shown = names.filter((_, i) => i % step === 0);
  const labels = shown.map((name, i) => ({ x: LEFT - 6, y: TOP + (i * step + 0.5) * size, text: name.slice(0, 9), right: true }));
  if (names.length) labels.push({ x: LEFT, y: TOP / 2, text: `to ${names[0]} … ${names[names.length - 1]}` });
  const values = cells.map((cell) => cell.value).filter((value) => value !== null);
  const least = values.reduce((one, other) => Math.min(one, other), Infinity);
  // where all are alike none is dark: the scale goes up to twice the least at least
  const most = values.reduce((one, other) => Math.max(one, other), 2 * least);
  return { cells, labels, columns: names.length, rows: names.length, size, ...(values.length ? { least, most } : { least: 0, most: 0 }) };
}

function groups(items) {
  return [...new Set(items.flatMap((row) => [row.src, ...row.dst]))].sort(natural);
}
