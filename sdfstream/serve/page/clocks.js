// Every clock against the reference: offset, skew and the bound on its error; the mesh that measures them.
import { html } from './lib.js';
import { useList } from './data.js';
import { duration, short } from './format.js';
import { stale } from './freshness.js';
import { Figure, Notice, Table } from './icons.js';
import { useStore } from './store.js';

const SIGNS = { synced: '●', holdover: '◆', unsynced: '✖', faulty: '✖', unknown: '□' };
const KINDS = { synced: 'healthy', holdover: 'warning', unsynced: 'unhealthy', faulty: 'unhealthy', unknown: 'unknown' };

export function Clocks() {
  const found = useList('clocks');
  const mesh = useList('mesh', {}, { events: ['mesh'] });
  const isStale = useStore(stale);
  const is = (clock) => (isStale ? 'unknown' : clock.status);
  const count = (status) => found.items.filter((clock) => is(clock) === status).length;
  const worst = Math.max(...found.items.filter((c) => is(c) === 'synced' && c.err_ns !== null).map((c) => c.err_ns));
  return html`<h1>Clocks</h1>
    <dl class="figures">
      <${Figure} label="Synced" value=${found.total === null ? '–' : `${count('synced')} of ${found.total}`} note=${count('unknown') ? `${count('unknown')} unknown` : ''} />
      <${Figure} label="Widest error bound of those" value=${duration(worst)} note="99.9 %" />
    </dl>
    <${Notice} of=${found} nothing="No clock is known." />
    ${found.items.length > 0 && html`<${Table} label="Clocks" items=${found.items} keyOf=${(c) => c.clock} columns=${[
      ['Clock', (c) => c.clock],
      ['Status', (c) => html`<span class=${KINDS[is(c)]}><span aria-hidden="true">${SIGNS[is(c)]}</span> ${is(c)}</span>`],
      ['Offset ± bound', (c) => (is(c) === 'unknown' ? 'unknown' : `${duration(c.offset_ns)} ± ${duration(c.err_ns)}`), 'number'],
      ['Skew', (c) => (is(c) === 'unknown' ? '–' : `${short(c.skew_ppb)} ppb`), 'number'],
      ['Age', (c) => duration(c.age_ns), 'number'],
    ]} />`}
    <h2>Mesh</h2>
    <${Notice} of=${mesh} nothing="No mesh plan is in force: probes are set by hand, or there are none." />
    ${mesh.items.length > 0 && html`<${Table} label="Mesh" items=${mesh.items} keyOf=${(h) => h.host} columns=${[
      ['Host', (h) => h.host], ['Plan', (h) => h.state],
      ['Sessions for clocks', (h) => short(h.clock_sessions), 'number'], ['For coverage', (h) => short(h.coverage_sessions), 'number'],
      ['Sends', (h) => `${short(h.send_pps)} /s of ${short(h.budget_pps)}`, 'number'],
    ]} />`}`;
}
