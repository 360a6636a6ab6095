// Counter-based random numbers, the program's own (data/src/random.rs): they depend only on a seed and a position. Four xxh3
// hashes of these make the key, and ChaCha with 8 rounds makes the number. So the same seed gives the same text here and in the
// program.

const BITS_64 = (1n << 64n) - 1n;

/** The first 32 bytes of xxh3's secret, as four numbers. */
const SECRET = [0xbe4ba423396cfeb8n, 0x1cad21f72c81017cn, 0xdb979083e96dd4den, 0x1f67b3b7a4a44072n];

/** Seeded 64-bit xxh3 of three 64-bit numbers: 24 bytes, of which the first 16 and the last 16 are mixed. */
function xxh3(numbers, seed) {
  const folded = (a, b) => ((a * b) & BITS_64) ^ ((a * b) >> 64n);
  const mixed = (first, secret) => folded(
    numbers[first] ^ ((SECRET[secret] + seed) & BITS_64),
    numbers[first + 1] ^ ((SECRET[secret + 1] - seed) & BITS_64),
  );
  let hash = (24n * 0x9e3779b185ebca87n + mixed(0, 0) + mixed(1, 2)) & BITS_64;
  hash = ((hash ^ (hash >> 37n)) * 0x165667919e3779f9n) & BITS_64;
  return hash ^ (hash >> 32n);
}

const rotated = (x, by) => (x << by) | (x >>> (32 - by));

/** A quarter round on four words of the state. */
function quarter(state, a, b, c, d) {
  for (const [by, more] of [[16, 12], [8, 7]]) {
    state[a] += state[b];
    state[d] = rotated(state[d] ^ state[a], by);
    state[c] += state[d];
    state[b] = rotated(state[b] ^ state[c], more);
  }
}

/** The first two 32-bit words of ChaCha with 8 rounds, for a key of eight words. */
function chacha8(key) {
  const begin = Uint32Array.of(0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, ...key, 0, 0, 0, 0);
  const state = begin.slice();
  for (let round = 0; round < 8; round += 2) {
    for (let i = 0; i < 4; i++) quarter(state, i, 4 + i, 8 + i, 12 + i);
    for (let i = 0; i < 4; i++) quarter(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  return [0, 1].map((i) => (state[i] + begin[i]) >>> 0);
}

/** The number in [0, 1) for the draw of token `step`, from 53 high bits. */
function uniform(seed, step) {
  const place = [BigInt(seed), 0n, BigInt(step)]; // sequence 0 of the prompt
  const key = [0n, 1n, 2n, 3n].map((part) => xxh3(place, part)).flatMap((hash) => [hash & 0xffffffffn, hash >> 32n]);
  const [low, high] = chacha8(key.map(Number));
  return (high * 2 ** 21 + (low >>> 11)) / 2 ** 53;
}
