// What is at one switch or host: its NICs, its links, and the queue pairs that cross it.
import { html } from './lib.js';
import { useList } from './data.js';
import { Notice, State, Table } from './icons.js';
import { QueuePairs } from './qps.js';
import { to } from './route.js';
import { Subject } from './subject.js';

// `id`: a switch, a host, or a NIC, which stands for the leaf that it hangs on.
export function Rack({ id }) {
  const topology = useList('topology', { type: 'nic' }, { everyMs: 0 });
  const asked = topology.items.find((item) => item.nic === id);
  const node = asked?.leaf || id.split('/')[0];
  const settled = !id.includes('/') || topology.total !== null || topology.error;
  const below = new Set(topology.items.filter((item) => item.leaf === node).map((item) => item.nic));
  const nics = useList('nics', {}, { events: ['nic'], item: 'nic' });
  const links = useList('links', settled ? { node } : {}, { events: ['finding'], most: settled ? undefined : 1 });
  const here = nics.items.filter((nic) => below.has(nic.nic) || nic.host === node);
  return html`<h1>${below.size ? 'Rack at' : ''} ${node} ${asked && html`<small>with ${id}</small>`}</h1>
    <h2>NICs</h2>
    <${Notice} of=${nics.total ? { ...nics, total: here.length } : nics} nothing="No NIC is known here." />
    ${here.length > 0 && html`<${NicTable} nics=${here} />`}
    <h2>Queue pairs</h2>
    ${settled && html`<${QueuePairs} node=${node} />`}
    <h2>Links</h2>
    ${links.items.length > 0 && settled ? html`<${Table} label="Links" items=${links.items} keyOf=${(link) => link.link} columns=${[
      ['Link', (link) => html`<${Subject} of=${{ id: link.link }} />`],
      ['State', (link) => html`<${State} is=${link.state} />`],
      ['Paths measured', (link) => link.directions.map((d) => (d.paths === null ? '' : `${d.direction} ${d.paths_measured} of ${d.paths}`)).join(' ')],
      ['Findings', (link) => link.findings.map((one) => html`<a href=${to('finding', one)}>${one.slice(0, 12)}</a> `)],
    ]} />` : html`<p class="notice">No link of it is declared.</p>`}`;
}

export function NicTable({ nics }) {
  return html`<${Table} label="NICs" items=${nics} keyOf=${(nic) => nic.nic} columns=${[
    ['NIC', (nic) => html`<a href=${to('nic', nic.nic)}>${nic.nic}</a>`],
    ['State', (nic) => html`<${State} is=${nic.state} />`],
    ['Sends', (nic) => html`<${State} is=${nic.tx} />`],
    ['Receives', (nic) => html`<${State} is=${nic.rx} />`],
    ['Port', (nic) => nic.port],
    ['Why', (nic) => nic.why],
  ]} />`;
}
