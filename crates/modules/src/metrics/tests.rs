//! The counts, by one thread and by several.

use super::*;
use crate::testing::answering;
use braid_contract::{Caller, Errno, HandleId, InodeId, WriteFlags};

fn of(figures: &[Figure], name: &str, operation: &str) -> Option<FigureValue> {
    let found = figures.iter().find(|figure| figure.name == name && figure.labels["operation"] == operation);
    found.map(|figure| figure.value.clone())
}

#[test]
fn bounds_are_powers_of_four_and_belong_to_what_is_below() {
    assert_eq!((TIMES_NS[0], TIMES_NS[12], SIZES[0], SIZES[7]), (1 << 10, 1 << 34, 512, 8 << 20));
    let histogram = Histogram::new(&SIZES);
    [0, 512, 513, 8 << 20, (8 << 20) + 1].into_iter().for_each(|value| histogram.add(value));
    let shown = histogram.distribution(1.0);
    let counts: Vec<u64> = shown.buckets.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!((shown.count(), shown.buckets[0].0, shown.buckets[8].0), (5, Some(512.0), None));
    assert_eq!(shown.sum, f64::from(512 + 513 + 2 * (8 << 20) + 1));
}

#[test]
fn operations_are_counted_with_what_they_moved_and_how_they_failed() {
    let child = answering(|request| match request {
        Request::Write { data, .. } => Reply::Write(Ok(data.len())),
        other => other.operation().failed(Errno::EIO.into()),
    });
    let module = Metrics::new(&Settings {}, child).unwrap();
    let fs: &dyn FileSystem = &module;
    assert!(Module::figures(&module).is_empty());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..250 {
                    fs.write(&Caller::root(), HandleId(1), 0, &[0; 1000], WriteFlags::default()).unwrap();
                }
            });
        }
    });
    assert!(fs.getattr(&Caller::root(), InodeId(1), None).is_err());
    let figures = Module::figures(&module);
    let Some(FigureValue::Histogram(sizes)) = of(&figures, "transfer_bytes", "write") else { panic!() };
    assert_eq!((sizes.count(), sizes.sum), (1000, 1e6));
    assert_eq!(of(&figures, "operation_errors", "write"), Some(FigureValue::Counter(0.0)));
    assert_eq!(of(&figures, "operation_errors", "getattr"), Some(FigureValue::Counter(1.0)));
    let Some(FigureValue::Histogram(times)) = of(&figures, "operation_seconds", "getattr") else { panic!() };
    assert!(times.count() == 1 && times.sum > 0.0 && times.sum < 60.0);
    assert_eq!(of(&figures, "transfer_bytes", "getattr"), None);
    assert_eq!(of(&figures, "operation_seconds", "rename"), None);
}

#[test]
fn what_was_counted_goes_on_in_the_next_one() {
    let failing =
        || Metrics::new(&Settings {}, answering(|request| request.operation().failed(Errno::EIO.into())));
    let (before, next) = (failing().unwrap(), failing().unwrap());
    let fail = |module: &Metrics| {
        let fs: &dyn FileSystem = module;
        assert!(fs.getattr(&Caller::root(), InodeId(1), None).is_err());
    };
    fail(&before);
    fail(&next);
    next.import(&Module::snapshot(&before).unwrap()).unwrap();
    next.import(&State::default()).unwrap();
    fail(&next);
    let figures = Module::figures(&next);
    assert_eq!(of(&figures, "operation_errors", "getattr"), Some(FigureValue::Counter(3.0)));
    let Some(FigureValue::Histogram(times)) = of(&figures, "operation_seconds", "getattr") else { panic!() };
    assert_eq!(times.count(), 3);
    for bytes in [
        &b"{"[..],
        br#"{"getattr":{"times":{"sum":1,"counts":[1]},"sizes":{"sum":1,"counts":[1]},"errors":1}}"#,
    ] {
        assert!(next.import(&State { version: VERSION, bytes: bytes.to_vec() }).is_err());
    }
    assert!(next.import(&State { version: 2, bytes: b"{}".to_vec() }).is_err());
    assert_eq!(Module::figures(&next), figures, "what is refused changes nothing");
}
