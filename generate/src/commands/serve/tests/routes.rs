//! Routes about the server itself.

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
    Arc::new(server::Server::new(models, 1, 0))
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
