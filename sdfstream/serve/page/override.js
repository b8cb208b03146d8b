// An operator's override: made and signed in this tab, posted, and its outcome awaited on the stream of changes.
import { headers, refusal } from './api.js';
import { canonical } from './canonical.js';
import { busNow } from './freshness.js';
import { operator, signature } from './key.js';
import { onEvents } from './live.js';

const WAIT_MS = 10000;
const SHORT_S = 60; // what is to work at once must not take effect after an outage
const NS_PER_MS = 1000000n;

// Sign and post; the controller's outcome, or an Error in words. given: {what, command, target, set, lasts_s}.
export async function send(given) {
  const data = await signed(given, BigInt(Math.floor(busNow())) * NS_PER_MS, `o-${hex(crypto.getRandomValues(new Uint8Array(8)))}`);
  const outcome = outcomeOf(data.id); // it may come before the answer to the post
  try {
    const answer = await fetch('/v1/overrides', { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: canonical(data) });
    if (!answer.ok) throw await refusal(answer);
    return await outcome.said;
  } finally {
    outcome.leave();
  }
}

// The data of a signed override, as sdfstream's serve/overrides_io.py makes it.
export async function signed({ what, command = '', target = {}, set = {}, lasts_s: lastsS = SHORT_S }, nowNs, id) {
  const { name, keyId } = operator.get();
  const data = {
    id, issued_at_ns: nowNs, expires_at_ns: nowNs + BigInt(lastsS) * 1000n * NS_PER_MS, what, operator: name, command, target, set, key_id: keyId,
  };
  return { ...data, signature: await signature(new TextEncoder().encode(canonical(data))) };
}

function outcomeOf(id) {
  let leave;
  const said = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`it is on its way to the bus, but no controller answered within ${WAIT_MS / 1000} s (does one run?)`)), WAIT_MS);
    const forget = onEvents(['outcome'], (_, { data }) => {
      if (data.target?.override !== id && data.command !== id) return;
      leave();
      if (data.state === 'refused' || data.state === 'failed') reject(new Error(`${data.state}: ${data.why}`));
      else resolve(data);
    });
    leave = () => (clearTimeout(timer), forget());
  });
  said.catch(() => undefined); // where the post itself fails nobody waits for it
  return { said, leave: () => leave() };
}

function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
