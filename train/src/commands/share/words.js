// Numbers rounded for people.

/** The first of the units that a number rounded to three digits reaches: 999,999 is a million. */
const reached = (n, units) => units.find(([least]) => Number(n.toPrecision(3)) >= least);

/** A count with three digits: 10.6 million. */
function roughly(n) {
  const [size, word] = reached(n, [[1e9, " billion"], [1e6, " million"], [1e3, " thousand"]]) ?? [1, ""];
  return `${Number((n / size).toPrecision(3))}${word}`;
}

function size(bytes) {
  const [unit, name] = reached(bytes, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) ?? [1, "bytes"];
  return `${Number((bytes / unit).toPrecision(3))} ${name}`;
}

/** Below ten with a decimal: an hour and a half is 1.5 hours, not two. Rounded, 60 minutes are an hour. */
function duration(seconds) {
  const units = [[1, "second", 60], [60, "minute", 60], [3600, "hour", 24]];
  const [unit, name] = units.find(([one, , most]) => Math.round(seconds / one) < most) ?? [86400, "day"];
  const count = seconds / unit;
  return plural(count < 10 ? Number(count.toFixed(1)) : Math.round(count), name);
}
