// A binary heap of numbers in an array, the least one first.

/** Adds a number to a heap. */
function pushLeast(heap, number) {
  let place = heap.push(number) - 1;
  while (place > 0) {
    const parent = (place - 1) >> 1;
    if (heap[parent] <= number) break;
    heap[place] = heap[parent];
    place = parent;
  }
  heap[place] = number;
}

/** Removes the least number of a heap. */
function popLeast(heap) {
  const least = heap[0];
  const last = heap.pop();
  let place = 0;
  for (;;) {
    let child = 2 * place + 1;
    if (heap[child + 1] < heap[child]) child += 1;
    if (!(heap[child] < last)) break;
    heap[place] = heap[child];
    place = child;
  }
  if (heap.length > 0) heap[place] = last;
  return least;
}
