//! The panic hook's calls during `quietly`. A separate process, since the hook is process-wide.
#![allow(clippy::unwrap_used)]

use std::panic;
use std::sync::Mutex;
use std::thread;

use ember_host::panics::{Panicked, quietly};

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn an_attempt_is_quiet_and_nothing_else_is() {
    panic::set_hook(Box::new(|info| HEARD.lock().unwrap().push(info.payload_as_str().unwrap_or_default().to_owned())));
    let panics = |name: &str, message: &'static str| {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || panic!("{message}")).unwrap();
        assert!(thread.join().is_err());
    };
    let attempt = quietly(|| {
        panics("a worker", "elsewhere");
        panics("DSU-1-0", "in the runtime");
        assert_eq!(quietly(|| panic!("inside")), Err::<(), _>(Panicked("inside".to_owned())));
        panic!("no driver\nand more")
    });
    assert_eq!(attempt, Err::<(), _>(Panicked("no driver".to_owned())));
    // Concurrent calls restore the hook, in whatever order they end.
    let attempts: Vec<_> = (0..8).map(|_| thread::spawn(|| quietly(|| panic!("none")))).collect();
    assert!(
        attempts.into_iter().all(|attempt: thread::JoinHandle<Result<(), Panicked>>| attempt.join().unwrap().is_err())
    );
    panics("DSU-1-0", "after");
    assert_eq!(*HEARD.lock().unwrap(), ["elsewhere", "after"]);
}
