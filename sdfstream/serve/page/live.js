// The stream of changes: followed while the page is in sight, resumed behind the last event that was seen.
// Read with fetch, not EventSource, which cannot send a token.
import { headers, refusal } from './api.js';
import { note, noteConnection } from './freshness.js';

const SILENT_MS = 12000; // the server speaks every 5 s
const followers = new Map();
let lastId;
let current;

// Call `fn` on events of these names; 'gap': events are missing, ask for everything anew.
export function onEvents(names, fn) {
  for (const name of names) followers.set(name, (followers.get(name) || new Set()).add(fn));
  return () => names.forEach((name) => followers.get(name).delete(fn));
}

function tell(name, data) {
  if (name === 'age') note(data);
  for (const fn of [...(followers.get(name) || [])]) fn(name, data);
}

// One block of an event stream: what stands between two blank lines.
export function parseBlock(block) {
  const fields = {};
  for (const line of block.split('\n')) {
    const at = line.indexOf(': ');
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  return fields;
}

async function read(abort) {
  const more = lastId ? { 'Last-Event-ID': lastId } : {};
  const answer = await fetch('/v1/stream', { headers: { ...headers(), ...more }, signal: abort.signal });
  if (!answer.ok) throw await refusal(answer);
  noteConnection(true);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let silent;
  const watch = () => {
    clearTimeout(silent);
    silent = setTimeout(() => abort.abort(), SILENT_MS);
  };
  try {
    for (;;) {
      watch();
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const fields of blocks.map(parseBlock)) {
        if (fields.id) lastId = fields.id;
        if (fields.event) tell(fields.event, JSON.parse(fields.data));
      }
    }
  } finally {
    clearTimeout(silent);
  }
}

async function follow() {
  let pauseMs = 500;
  for (;;) {
    if (document.hidden) await new Promise((seen) => addEventListener('visibilitychange', seen, { once: true }));
    current = new AbortController();
    const began = Date.now();
    try {
      await read(current);
    } catch {
      // gone: said by the connection's state, and tried again
    }
    noteConnection(false);
    if (Date.now() - began > 10000) pauseMs = 500;
    await new Promise((done) => setTimeout(done, pauseMs));
    pauseMs = Math.min(5000, pauseMs * 1.6);
    tell('back', null); // the lists are asked for as well: they say how the server is
  }
}

addEventListener('visibilitychange', () => document.hidden && current?.abort());
export const begin = () => void follow();
