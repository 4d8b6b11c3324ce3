use super::*;
use mcs_core::version::{Sum, Version};
use mcs_registry::store::{MemberRecord, Memory, Write};
use std::io::{self, BufRead, Read};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[tokio::test]
async fn what_changes_while_somebody_is_asked_is_not_removed() {
    for (changed, state, version) in [
        ("it came back", MemberState::Active, Version::new(1, 1)),
        ("it came back and expired again", MemberState::Expired, Version::new(2, 7)),
    ] {
        let store = Arc::new(Memory::default());
        write(&store, MemberState::Expired, Version::new(1, 1));
        let meanwhile = Arc::clone(&store);
        let person = Person { answer: b"y\n", first: Box::new(move || write(&meanwhile, state, version)) };
        let removed = from_store(&*store, "a table", &args(), &mut Confirm::answered(person)).await;
        assert!(
            matches!(removed, Err(NotRemoved::Changed { .. } | NotRemoved::Active { .. })),
            "{changed}: {removed:?}"
        );
        assert_eq!(store.members(&args().clusterset).await.unwrap().whole.len(), 1, "{changed}");
    }
}

#[tokio::test]
async fn what_is_as_it_was_goes_when_somebody_says_yes_and_stays_otherwise() {
    let store = Memory::default();
    write(&store, MemberState::Expired, Version::new(1, 1));
    let no = from_store(&store, "a table", &args(), &mut Confirm::answered(&b"n\n"[..])).await;
    assert_eq!(no.map_err(|error| error.to_string()), Err("nothing was removed".to_owned()));
    let yes = from_store(&store, "a table", &args(), &mut Confirm::answered(&b"y\n"[..])).await;
    let told = "removed cluster west of clusterset prod (UID u-2) from a table: 0 exports and 0 endpoints\n";
    assert_eq!(yes.map_err(|error| error.to_string()), Ok(told.to_owned()));
    assert_eq!(store.members(&args().clusterset).await.unwrap().whole, []);
}

fn args() -> DeleteCluster {
    DeleteCluster {
        clusterset: "prod".parse().unwrap(),
        cluster: "west".parse().unwrap(),
        uid: None,
        yes: false,
        force: false,
    }
}

/// The record of the cluster is this.
fn write(store: &Memory, state: MemberState, version: Version) {
    let DeleteCluster { clusterset, cluster, .. } = args();
    let member = Member { clusterset, cluster, uid: "u-2".parse().unwrap() };
    let record = MemberRecord { region: None, version, sum: Sum::EMPTY, state, claimed_at: None };
    let written = pin!(Store::write(store, &member, vec![Write::Member(record)]));
    // Memory is written at once.
    assert!(matches!(written.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_))));
}

/// Somebody who does something before the answer.
struct Person {
    answer: &'static [u8],
    first: Box<dyn FnMut()>,
}

impl Read for Person {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.answer.read(buffer)
    }
}

impl BufRead for Person {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        (self.first)();
        Ok(self.answer)
    }

    fn consume(&mut self, amount: usize) {
        self.answer.consume(amount);
    }
}
