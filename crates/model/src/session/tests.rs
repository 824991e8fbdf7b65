use super::*;
use crate::Id;

fn stamp(millis: u64, random: u8) -> Stamp {
    Stamp { millis, random: [random; 10] }
}

#[test]
fn ids_are_in_the_order_of_their_making() {
    let times = [0, 1, 31, 32, 1_000, 1_794_800_000_000, 1_794_800_000_001, (1 << 48) - 1];
    let ids: Vec<SessionId> = times
        .iter()
        .flat_map(|millis| [0, 7, 255].map(|random| SessionId::new(stamp(*millis, random))))
        .collect();
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn what_is_made_is_read_again_and_fits_everywhere() {
    for (millis, random) in [(0, 0), (1_794_800_000_000, 0xa5), (u64::MAX, 255)] {
        let stamp = stamp(millis, random);
        let (session, run) = (SessionId::new(stamp), RunId::new(stamp));
        assert_eq!(SessionId::parse(session.as_str()), Ok(session.clone()));
        assert_eq!(RunId::parse(run.as_str()), Ok(run.clone()));
        assert_eq!(OwnerId::parse(OwnerId::new(stamp).as_str()), Ok(OwnerId::new(stamp)));
        assert_eq!(MessageId::parse(MessageId::new(stamp).as_str()), Ok(MessageId::new(stamp)));
        for text in [session.as_str(), run.as_str()] {
            assert!(Id::new(text).is_ok());
            assert!(
                text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            );
        }
    }
    assert_eq!(
        SessionId::new(stamp(1_794_800_000_000, 0)).as_str(),
        "sn_01m7h6n700".to_owned() + "0000000000000000"
    );
}

#[test]
fn nothing_else_is_an_id() {
    let good = SessionId::new(stamp(1_794_800_000_000, 9)).to_string();
    let upper = good.to_uppercase();
    let run = good.replace("sn_", "run_");
    for bad in [
        "",
        "sn_",
        "..",
        "sn_../../etc/passwd/aaaaaaaaaa",
        &good[1..],
        &format!("{good}0"),
        &upper,
        &run,
        "ses_1",
    ] {
        assert_eq!(SessionId::parse(bad), Err(BadSessionId), "{bad:?}");
    }
    assert_eq!(SessionId::parse(&format!("sn_8{}", "0".repeat(25))), Err(BadSessionId));
    assert_eq!(SessionId::parse(&format!("sn_{}i", "0".repeat(25))), Err(BadSessionId));
    for bad in [
        "msg_",
        "msg_1",
        "msg_0123456789abé0000000000000",
        "msg_0123456789aG00000000000000",
        "ses_0123456789ab00000000000000",
    ] {
        assert_eq!(MessageId::parse(bad), Err(BadSessionId), "{bad:?}");
    }
}

#[test]
fn a_message_id_sorts_among_those_of_the_agent() {
    // What OpenCode made of this time, with its counter at 1.
    let (millis, theirs) = (1_779_543_994_009, "msg_e55166e99001");
    let before = MessageId::new(stamp(millis - 1, 255)).to_string();
    let ours = MessageId::new(stamp(millis, 255)).to_string();
    let after = MessageId::new(stamp(millis + 1, 0)).to_string();
    assert_eq!(ours[..16], format!("msg_{:012x}", (millis * 4096) % (1 << 48)));
    assert_eq!(ours.len(), theirs.len() + 14);
    assert!(before < ours && ours < after);
}

#[test]
fn phases_go_forward_or_back_to_the_start_but_never_out_of_finishing() {
    let rows = [
        (Phase::Starting, [true, true, false]),
        (Phase::Prompting, [true, true, true]),
        (Phase::Finishing, [false, false, true]),
    ];
    for (from, expected) in rows {
        assert_eq!(Phase::ALL.map(|next| from.may_become(next)), expected, "{from:?}");
        assert_eq!(Phase::parse(from.as_str()), Some(from));
    }
    for by in CanceledBy::ALL {
        assert_eq!(CanceledBy::parse(by.as_str()), Some(by));
    }
}
