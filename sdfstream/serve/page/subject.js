// What a finding or command is about, as a link to where it is shown.
import { html } from './lib.js';
import { to } from './route.js';

export function Subject({ of }) {
  if (!of) return 'not known';
  const link = hrefOf(of.id);
  const text = `${of.type || ''} ${of.id}`.trim();
  return link ? html`<a href=${link}>${text}</a>` : text;
}

// A NIC's page, a pair's, or that of a host or switch; null where the name is none of them.
export function hrefOf(id) {
  const name = String(id || '').replace(/^(tx|rx|node|nic|host|link) /, '');
  const pair = /^([^\s>]+\/[^\s>]+)>([^\s>]+\/[^\s>]+)/.exec(name);
  if (pair) return to('pair', [pair[1], pair[2]]);
  if (/^[^\s/>]+\/[^\s/>#-]+$/.test(name)) return to('nic', name);
  const ends = name.split(/--|->/);
  if (ends.length === 2) return to('rack', ends.find((end) => !end.includes('/')) || ends[0]);
  return /^[\w.-]+$/.test(name) && /\d/.test(name) ? to('rack', name) : null;
}
