// Order of a map's rows in which near ones stand together: from each the nearest that is left, by delay without queues.
export function byNearness(rows, names) {
  const floor = new Map();
  for (const row of rows) {
    row.dst.forEach((dst, i) => {
      if (row.floor_ns[i] === null) return;
      for (const key of [`${row.src}\n${dst}`, `${dst}\n${row.src}`]) {
        floor.set(key, Math.min(row.floor_ns[i], floor.get(key) ?? Infinity));
      }
    });
  }
  const left = [...names];
  const ordered = left.splice(0, 1);
  while (left.length) {
    const from = ordered[ordered.length - 1];
    let best = 0;
    for (let i = 1; i < left.length; i += 1) {
      // where nothing is measured between two they are as they were: the first of the names
      if ((floor.get(`${from}\n${left[i]}`) ?? Infinity) < (floor.get(`${from}\n${left[best]}`) ?? Infinity)) best = i;
    }
    ordered.push(...left.splice(best, 1));
  }
  return ordered;
}
