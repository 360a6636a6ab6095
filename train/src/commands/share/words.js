// Numbers rounded for people.

/** A count with three digits: 10.6 million. */
function roughly(n) {
  const [size, word] = [[1e9, " billion"], [1e6, " million"], [1e3, " thousand"]].find(([least]) => n >= least) ?? [1, ""];
  return `${Number((n / size).toPrecision(3))}${word}`;
}

function size(bytes) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => bytes >= least) ?? [1, "bytes"];
  return `${Number((bytes / unit).toPrecision(3))} ${name}`;
}

function duration(seconds) {
  const [unit, name] = [[86400, "day"], [3600, "hour"], [60, "minute"]].find(([least]) => seconds >= least) ?? [1, "second"];
  return plural(Math.round(seconds / unit), name);
}
