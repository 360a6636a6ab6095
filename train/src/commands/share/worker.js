// The worker, which holds the model: it runs one task at a time, and stops the current one when the next arrives.

/** In the worker: takes messages `{ask: "open" | "write" | "look" | "stop", number}`; replies carry the number of their request. */
function startWorker() {
  let [writer, newest, queue] = [null, 0, Promise.resolve()];
  const acts = {
    open: ({ head, weights }) => { writer = newWriter(head, bytesOf(weights).buffer); },
    write: (asked, tell, pause) => write(writer, asked, (token) => tell("token", token), pause),
    look: async (asked, _, pause) => ({ top: await lookAhead(writer, asked, pause) }),
    stop: () => {},
  };
  addEventListener("message", ({ data: asked }) => {
    newest = asked.number;
    const tell = (told, facts) => postMessage({ told, number: asked.number, ...facts });
    const act = () => acts[asked.ask](asked, tell, pauseUntil(() => newest !== asked.number));
    queue = queue.then(act).then((facts) => tell("done", facts), (error) => tell("mishap", { words: error.message }));
  });
}

/** In the page: returns a function that sends a request to the worker, and passes its replies to `hear` until the next request. */
function newWorker(script) {
  const worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  let [number, heard] = [0, () => {}];
  worker.addEventListener("message", ({ data }) => { if (data.number === number) heard(data); });
  // A worker that could not even be loaded gives no message.
  worker.addEventListener("error", ({ message = "this browser starts no worker here" }) => heard({ told: "mishap", words: message }));
  return (asked, hear = () => {}) => {
    number += 1;
    heard = hear;
    worker.postMessage({ ...asked, number });
  };
}
