// The page's weights: one byte string in base64, and a table with each tensor's offset.

/** Decodes base64 in pieces, so that no intermediate string of the full length is made. */
function bytesOf(base64) {
  const PIECE = 1 << 20; // a multiple of four characters, which are three bytes
  const text = base64.trim();
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array(text.length / 4 * 3 - padding);
  for (let from = 0, at = 0; from < text.length; from += PIECE) {
    const piece = atob(text.slice(from, from + PIECE));
    for (let i = 0; i < piece.length; i++) bytes[at++] = piece.charCodeAt(i);
  }
  return bytes;
}

/** Returns a function from a name to its tensor: a matrix, a vector as an array, or null if the model has none. */
function tensorsOf(table, buffer) {
  const entries = new Map(table.map((entry) => [entry.name, entry]));
  return (name) => {
    const entry = entries.get(name);
    if (!entry) return null;
    const { type, shape, offset } = entry;
    return shape.length === 1 ? new Float32Array(buffer, offset, shape[0]) : readMatrix(buffer, offset, type, shape);
  };
}
