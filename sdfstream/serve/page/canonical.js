// Canonical JSON (RFC 8785), with whole numbers of any size as their digits: what a signature covers, byte for byte as
// sdfstream's records/command.py writes it. Instants in ns are larger than a double holds, so they are BigInt.
export function canonical(value) {
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value && typeof value === 'object') {
    return `{${Object.keys(value).sort().map((name) => `${canonical(name)}:${canonical(value[name])}`).join(',')}}`; // by UTF-16 units
  }
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error('no number that JSON can write');
  if (typeof value === 'string' && /[\ud800-\udfff]/u.test(value)) throw new Error('half a character cannot be signed');
  const text = JSON.stringify(value); // ECMAScript's own texts and numbers are RFC 8785's
  if (text === undefined) throw new Error('nothing that JSON can write');
  return text;
}
