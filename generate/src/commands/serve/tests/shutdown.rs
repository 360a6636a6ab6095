//! How the server ends.

use super::*;

/// Whatever its route: this one waits in no queue.
#[test]
fn a_request_that_has_begun_is_answered_before_the_server_ends() {
    let server = Server::open();
    let (address, body) = (server.address, json!({ "content": "abc" }).to_string());
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("Host: {address}\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("POST /tokenize HTTP/1.1\r\n{head}").as_bytes()).unwrap();
    let mut reads_body = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut reads_body).unwrap();
    let ending = thread::spawn(move || drop(server));
    thread::sleep(Duration::from_millis(1500)); // longer than it waits for connections without a request
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"count\":3"), "{answer}");
    ending.join().unwrap();
}
