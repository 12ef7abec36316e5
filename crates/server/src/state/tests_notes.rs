//! The largest notes of what clients send are within what limits and room are counted with.

use super::clients::ExchangeId;
use super::identity::Requester;
use super::notes::Stamped;
use super::sessions::NewSession;
use super::*;
use crate::limits;
use landfast_nfs::v4::args::{AuthSysParms, CallbackSecParms};
use landfast_nfs::v4::flags::AUTH_SYS;
use landfast_nfs::v4::res::CreateSessionRes;
use landfast_nfs::v4::{ChannelAttrs, ClientOwner, Opaque1024};
use landfast_rpc::OpaqueAuth;
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::IpAddr;

const MOST: Principal = Principal { flavor: u32::MAX, uid: u32::MAX };

fn address(n: u16) -> IpAddr {
    IpAddr::from([0x2001, u16::MAX, u16::MAX, u16::MAX, u16::MAX, u16::MAX, u16::MAX, n])
}

/// Each number is as large as its field.
fn channel() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: u32::MAX,
        max_request_size: u32::MAX,
        max_response_size: u32::MAX,
        max_response_size_cached: u32::MAX,
        max_operations: u32::MAX,
        max_requests: u32::MAX,
        rdma_ird: Vec::new(),
    }
}

/// The longest of these values that is decoded.
fn longest<T: Encode + Decode>(values: impl Iterator<Item = T>) -> T {
    let decoded = values.filter_map(|value| T::from_bytes(value.to_bytes()).ok());
    decoded.max_by_key(|value| value.to_bytes().len()).expect("one")
}

fn bytes(notes: impl IntoIterator<Item = Stamped>) -> u64 {
    notes.into_iter().map(|note| note.to_bytes().len() as u64).sum()
}

#[test]
fn a_session_takes_no_more_of_the_log_than_is_counted() {
    let sys = |name: usize, gids: usize| {
        CallbackSecParms::Sys(AuthSysParms {
            stamp: u32::MAX,
            machine_name: Bytes::from(vec![b'm'; name]),
            uid: u32::MAX,
            gid: u32::MAX,
            gids: vec![u32::MAX; gids],
        })
    };
    let offered = (0..2048).step_by(15).flat_map(|name| (0..64).map(move |gids| (name, gids)));
    let CallbackSecParms::Sys(sys) = longest(offered.map(|(name, gids)| sys(name, gids))) else {
        panic!("AUTH_SYS");
    };
    let mut st: State<u32> = State::new(1, 90_000, Bounds::new(None));
    let id = [0xff; 16];
    let new = NewSession {
        id,
        client: u64::MAX,
        // A session has as many slots as its channel says.
        fore: ChannelAttrs { max_requests: limits::SLOTS_MAX, ..channel() },
        back: channel(),
        callback_program: u32::MAX,
        flags: u32::MAX,
        callback_cred: Some(OpaqueAuth { flavor: AUTH_SYS, body: sys.to_bytes() }),
    };
    st.sessions.insert(new, u64::MAX, 0);
    let session = st.sessions.get(&id).expect("it");
    let most = bytes(session.notes());
    assert!(most <= limits::SESSION_NOTE_BYTES, "{most}");
}

#[test]
fn a_client_record_takes_no_more_of_the_log_than_is_counted() {
    let owner = longest((0..2048).map(|bytes| ClientOwner {
        verifier: [0xff; 8],
        owner_id: Opaque1024(Bytes::from(vec![0xff; bytes])),
    }));
    let reply = CreateSessionRes {
        sessionid: [0xff; 16],
        sequence: u32::MAX,
        flags: u32::MAX,
        fore_chan_attrs: channel(),
        back_chan_attrs: channel(),
    };
    let mut st: State<u32> = State::new(u32::MAX, 90_000, Bounds::new(None));
    let by = Requester { principal: MOST, addr: address(0) };
    let ask = ExchangeId { owner: owner.owner_id.0.clone(), verifier: owner.verifier, by, update: false };
    let id = st.exchange_id(0, &ask).expect("a client ID").client;
    st.clients.created(id, 0, reply.to_bytes(), u64::MAX);
    let client = st.clients.get_mut(id).expect("it");
    (client.went_on, client.missed_grace, client.create_sequence) = (true, true, u32::MAX);
    (1..limits::CLIENT_ADDRESSES_MAX as u16).for_each(|n| client.addrs.add(address(n)));
    let most = bytes(st.client_notes(id));
    assert!(most <= limits::CLIENT_NOTE_BYTES, "{most}");
}
