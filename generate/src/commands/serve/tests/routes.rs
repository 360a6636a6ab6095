//! Routes about the server itself: its health, its slots, and parts that are turned off.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::*;

/// A server without models.
fn without_models() -> Arc<server::Server> {
    let (device, weights) = (Device::flex(), WeightType::F32);
    let options = LoadOptions { device, weights, tokens_per_step: 16, cache_bytes: 1 << 20, max_bytes: 1 << 30 };
    let models = Models::new(Served { folders: Vec::new(), run: None }, options).unwrap();
    Arc::new(server::Server::new(models, Setup::default(), 1, 0))
}

/// Status and body of the answer to a GET, without a connection.
fn answer(server: &Arc<server::Server>, without: &[Optional], path: &str) -> (u16, String) {
    let app = router(Arc::clone(server), Arc::new(guard::Guard::new(None, Vec::new())), without);
    let request = Request::get(path).header("Host", "localhost").body(Body::empty()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let response = TowerToHyperService::new(app).call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    })
}

/// A load balancer then sends it no more requests.
#[test]
fn a_server_whose_device_has_failed_says_so() {
    let server = without_models();
    assert_eq!(answer(&server, &[], "/health").0, 200);
    server.device_has_failed("the device was lost");
    let (status, body) = answer(&server, &[], "/health");
    assert!(status == 503 && body.contains("the device was lost"), "{body}");
}

#[test]
fn a_part_that_is_turned_off_is_not_there_and_all_others_are() {
    let server = without_models();
    let parts = [(Optional::Page, "/", 404), (Optional::Slots, "/slots", 501), (Optional::Metrics, "/metrics", 501)];
    for (off, _, _) in parts {
        for (part, path, absent) in parts {
            let status = answer(&server, &[off], path).0;
            assert_eq!(status, if part == off { absent } else { 200 }, "{path} without {off:?}");
            let (_, listed) = answer(&server, &[off], "/openapi.json");
            let listed: Value = serde_json::from_str(&listed).unwrap();
            assert_eq!(listed["paths"].get(path).is_some(), part != off, "{path} without {off:?}");
        }
    }
}

#[test]
fn a_busy_slot_tells_what_it_has_written_and_is_not_free() {
    let server = Server::start(None, Vec::new(), 1, 0);
    let status_if_none_is_free = || server.send("GET", "/slots?fail_on_no_slot=1", "", "").0;
    let slot = || serde_json::from_str::<Value>(&server.send("GET", "/slots", "", "").2).unwrap()[0].clone();
    let soon = |is_so: &dyn Fn() -> bool| {
        (0..1000).any(|_| {
            is_so() || {
                thread::sleep(Duration::from_millis(10));
                false
            }
        })
    };
    assert_eq!((status_if_none_is_free(), &slot()["is_processing"]), (200, &json!(false)));
    // Sent whole, so that it does not matter when the client reads.
    let running = server.ask(&json!({ "prompt": "abc", "max_tokens": 250_000, "overflow": "slide" }));
    assert!(soon(&|| slot()["n_decoded"].as_u64() > Some(0)), "{}", slot());
    let busy = slot();
    assert_eq!(
        (&busy["is_processing"], &busy["model"], &busy["n_prompt_tokens"]),
        (&json!(true), &json!("tiny"), &json!(3))
    );
    assert_eq!(status_if_none_is_free(), 503);
    drop(running);
    assert!(soon(&|| status_if_none_is_free() == 200), "{}", slot());
}
