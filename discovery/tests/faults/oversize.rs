//! O63: bodies that are too large, with and without a length: refused by the limit, of which the message has the name,
//! and before they are held.

use crate::program::Program;
use crate::service::{ask, read_answer};
use crate::witness::Client;
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The most that the program's memory may grow.
const GROWTH: usize = 32 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused_by_its_limit_and_what_stands_stays() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let address = program.address;
    let attack = async move {
        for framing in ["content-length: 200000000", "transfer-encoding: chunked"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let head =
                format!("POST /pools HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{framing}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            let (mut answers, mut asks) = client.split();
            let sending = async {
                let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
                for _ in 0..3_000 {
                    if asks.write_all(chunk.as_bytes()).await.is_err() {
                        return;
                    }
                }
            };
            let (answer, ()) = tokio::join!(read_answer(&mut answers), sending);
            assert_eq!((answer.status, answer.header("connection")), (413, "close"), "{framing}");
            assert!(answer.body.contains("1048576 bytes") && answer.body.contains("--max-body-bytes"));
        }
        // Just within the limit it is read, and refused for what it is.
        let (status, told) = ask(address, "POST", "/pools", &"[".repeat(MIB)).await;
        assert_eq!(status, 422, "{told}");
    };
    let ((), seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    seen.tell("bodies of 200 MB");
}
