// The pipeline itself: what arrives, what waits, what was lost. A picture of the fabric is as good as this.
import { html } from './lib.js';
import { useList } from './data.js';
import { duration, short } from './format.js';
import { isPast } from './freshness.js';
import { Figure, Notice, Table } from './icons.js';

export function Pipeline() {
  const found = useList('pipeline');
  const of = (type) => found.items.filter((item) => item.type === type);
  const hosts = of('hosts')[0];
  return html`<h1>Pipeline</h1>
    <${Notice} of=${found} nothing=${isPast() ? 'The archive does not tell of the pipeline itself.' : 'Nothing is known.'} />
    ${hosts && html`<dl class="figures">
      <${Figure} label="Hosts that report" value=${`${hosts.count - hosts.stale} of ${hosts.count}`} kind=${hosts.stale ? 'bad' : ''} note=${hosts.stale ? `${hosts.stale} silent` : ''} />
      <${Figure} label="Newest data" value=${`${duration(hosts.age_ns)} old`} />
      <${Figure} label="Rows taken" value=${`${short(of('topic').reduce((sum, t) => sum + t.rows_per_s, 0))} /s`} />
    </dl>`}
    ${of('topic').length > 0 && html`<h2>Topics</h2><${Table} label="Topics" items=${of('topic')} columns=${[
      ['Topic', (t) => t.name], ['Messages', (t) => `${short(t.messages_per_s)} /s`, 'number'], ['Rows', (t) => `${short(t.rows_per_s)} /s`, 'number'], ['Newest', (t) => `${duration(t.age_ns)} old`, 'number'],
    ]} />`}
    ${of('reader').length > 0 && html`<h2>Readers</h2><${Table} label="Readers" items=${of('reader')} columns=${[
      ['Reader', (r) => r.name], ['Messages not read yet', (r) => short(r.lag), 'number'],
    ]} />`}
    ${hosts && html`<h2>Lost or set aside by the boards</h2>
      ${of('counter').length ? html`<${Table} label="Counters" items=${of('counter')} columns=${[['What', (c) => c.name], ['How many', (c) => short(c.count), 'number']]} />` : html`<p class="notice">Nothing.</p>`}`}`;
}
