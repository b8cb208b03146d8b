// Two NICs (or hosts) and what lies between: both directions over time with the band of error, loss, marks, paths now.
import { html, useMemo } from './lib.js';
import { Chart } from './chart.js';
import { useList } from './data.js';
import { duration, share } from './format.js';
import { useHistory } from './history.js';
import { Notice } from './icons.js';
import { marksOf } from './marks.js';
import { PathTable } from './nic.js';
import { QpTable } from './qps.js';
import { to } from './route.js';
import { Span } from './span.js';

export function Pair({ id: a, other: b }) {
  const history = useHistory({ a, b });
  const out = useList('paths', { src: a, dst: b }, { most: 100 });
  const back = useList('paths', { src: b, dst: a }, { most: 100 });
  const findings = useList('findings', {}, { events: ['finding'], most: 2000 });
  const commands = useList('commands', {}, { events: ['command', 'outcome'], most: 1000 });
  const crossing = useList('qps', { node: a });
  const qps = crossing.items.filter((qp) => isAt(qp.src, a) && isAt(qp.dst, b));
  const lines = useMemo(() => series(history.items), [history.items]);
  const names = [a, b, ...qps.flatMap((qp) => [qp.qp, ...qp.elements.filter((e) => e.includes('->')), ...qp.elements.filter((e) => e.includes('->')).map((e) => e.split('->').sort().join('--'))])];
  const marks = marksOf(findings.items, commands.items, names);
  const directions = [[`${a} → ${b}`, 'out', 'link'], [`${b} → ${a}`, 'back', 'warn']];
  return html`<h1>Pair <a href=${hrefOf(a)}>${a}</a> and <a href=${hrefOf(b || '')}>${b}</a></h1>
    <p><a href=${to('pair', [b, a])}>The other way round</a></p>
    <h2>One-way delay, median with its error band</h2><${Span} />
    <${Notice} of=${history} nothing="Nothing was measured between them in this stretch." />
    ${lines.x.length > 0 && html`
      <${Chart} name="One-way delay of both directions" x=${lines.x} marks=${marks} text=${duration} series=${directions.map(([label, way, colour], i) => ({ label, colour, dash: i ? [6, 3] : undefined, ...lines[way] }))} />
      <h2>Exchanges lost, and CE marks</h2>
      <${Chart} name="Loss and marks of both directions" x=${lines.x} marks=${marks} text=${share} series=${directions.flatMap(([label, way, colour]) => [
        { label: `lost of those begun ${label}`, colour: 'unhealthy', dash: way === 'back' ? [6, 3] : undefined, values: lines[way].loss },
        { label: `CE ${label}`, colour, dash: [2, 3], values: lines[way].ce }])} />`}
    ${qps.length > 0 && html`<h2>Queue pairs</h2><${QpTable} qps=${qps} />`}
    <h2>Paths now</h2>
    <${Notice} of=${{ ...out, total: out.total === null || back.total === null ? null : out.total + back.total }} nothing="No path between them is known." />
    ${out.items.length + back.items.length > 0 && html`<${PathTable} paths=${[...out.items, ...back.items]} />`}`;
}

function isAt(nic, end) {
  return nic === end || nic.split('/')[0] === end;
}

function hrefOf(end) {
  return to(end.includes('/') ? 'nic' : 'rack', end);
}

// One row an instant, both directions beside each other; what is not known is null, and the line has a gap.
export function series(items) {
  const x = [...new Set(items.map((item) => item.at_ns / 1e9))].sort((p, q) => p - q);
  const at = new Map(x.map((s, i) => [s, i]));
  const found = { x };
  for (const way of ['out', 'back']) {
    const one = { values: x.map(() => null), low: x.map(() => null), high: x.map(() => null), loss: x.map(() => null), ce: x.map(() => null) };
    for (const item of items.filter((other) => other.direction === way)) {
      const i = at.get(item.at_ns / 1e9);
      one.values[i] = item.owd_p50_ns;
      if (item.owd_p50_ns !== null && item.err_ns !== null) {
        one.low[i] = item.owd_p50_ns - item.err_ns;
        one.high[i] = item.owd_p50_ns + item.err_ns;
      }
      if (item.n + item.lost > 0) one.loss[i] = item.lost / (item.n + item.lost);
      if (item.n > 0) one.ce[i] = item.ce / item.n;
    }
    found[way] = one;
  }
  return found;
}
