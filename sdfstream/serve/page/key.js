// The operator's signing key: read from a file into this tab, never stored, never sent, gone with the tab or when asked.
import { store } from './store.js';

const PREFIX = [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20]; // PKCS#8 of Ed25519, RFC 8410
const ED25519 = { name: 'Ed25519' };
const BYTES = 32;

export const operator = store(null); // {name, keyId, key}

// Why this tab cannot sign; null: nothing is known to be in the way.
export function whyNot() {
  if (isSecureContext && crypto.subtle) return null;
  return 'This page came over plain http from another machine, where browsers refuse to sign: open it through ssh -L or a proxy with TLS, or use the command line';
}

// Take the key file of an operator; an Error in words where it is none, or the browser cannot use it.
export async function take(file, name) {
  const raw = new Uint8Array(await file.arrayBuffer());
  if (raw.length !== BYTES) throw new Error(`${file.name} holds ${raw.length} bytes; a signing key (keys/operator.key) is ${BYTES}`);
  const wrapped = new Uint8Array([...PREFIX, ...raw]);
  try {
    const keyId = await idOf(wrapped);
    operator.set({ name, keyId, key: await crypto.subtle.importKey('pkcs8', wrapped, ED25519, false, ['sign']) });
  } catch (error) {
    throw new Error(`this browser does not sign with Ed25519 (${error.name}); use the command line`);
  } finally {
    raw.fill(0);
    wrapped.fill(0);
  }
}

export function forget() {
  operator.set(null);
}

export async function signature(bytes) {
  const made = new Uint8Array(await crypto.subtle.sign(ED25519, operator.get().key, bytes));
  return btoa(String.fromCharCode(...made));
}

// The first 16 hex digits of the SHA-256 of the public key. Only a key that may be exported says its public half: this
// one lives as long as this function.
async function idOf(wrapped) {
  const readable = await crypto.subtle.importKey('pkcs8', wrapped, ED25519, true, ['sign']);
  const { x } = await crypto.subtle.exportKey('jwk', readable);
  const open = Uint8Array.from(atob(x.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', open));
  return [...digest.slice(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
