//! The device by itself, against its figures; and the operations that wait for it.

use super::device::Figures;
use super::*;
use crate::testing::answering;
use braid_contract::{Caller, SplitMix, WriteFlags};
use serde_json::json;

const FIGURES: Figures = Figures {
    read_latency_ns: 1000,
    write_latency_ns: 500,
    sync_latency_ns: 7000,
    seek_ns: 0,
    read_bandwidth: 1_000_000_000,
    write_bandwidth: 500_000_000,
    depth: 4,
};

fn read(offset: u64, bytes: u64) -> Work {
    Work::Read { file: 1, offset, bytes }
}

fn settings(value: serde_json::Value) -> std::result::Result<Settings, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[test]
fn one_operation_takes_its_latency_and_that_of_its_bytes() {
    let done = |work| Device::new(FIGURES).done_at(work, 10);
    assert_eq!(done(read(0, 4096)), 10 + 1000 + 4096);
    let write = |is_synced| Work::Write { file: 1, offset: 0, bytes: 4096, is_synced };
    assert_eq!(done(write(false)), 10 + 500 + 8192);
    assert_eq!(done(write(true)), 10 + 500 + 8192 + 7000);
    assert_eq!(done(Work::Sync), 7010);
}

#[test]
fn latencies_pass_together_as_far_as_the_queue_is_deep_and_bytes_one_after_the_other() {
    let mut device = Device::new(FIGURES);
    let done: Vec<u64> = (0..5).map(|_| device.done_at(read(0, 100), 0)).collect();
    assert_eq!(done, [1100, 1200, 1300, 1400, 2200]);
}

#[test]
fn a_disk_seeks_between_places() {
    let mut device = Device::new(Figures { seek_ns: 50_000, depth: 1, ..FIGURES });
    let took = [read(0, 100), read(100, 100), read(300, 100)].map(|work| {
        let asked = 1_000_000 * (work.moving(0) == read(300, 0)) as u64;
        device.done_at(work, asked) - asked
    });
    assert_eq!(took, [51_100, 51_100 + 1100, 51_100]);
}

#[test]
fn it_never_does_more_than_its_figures_say() {
    for seed in 0..50 {
        let mut random = SplitMix::new(seed);
        let mut device = Device::new(FIGURES);
        let (mut now, mut bytes, mut last, mut count) = (0, 0, 0, 0);
        for _ in 0..300 {
            now += random.below(2000);
            let len = random.below(8000);
            let done = device.done_at(read(random.below(1 << 20), len), now);
            assert!(done >= now + 1000 + len);
            bytes += len;
            count += 1;
            last = last.max(done);
            assert!(last >= bytes, "{bytes} bytes at one a nanosecond by {last}");
            // No more at a time than there are places.
            assert!(last * 4 >= count * 1000, "{count} of 1000 ns each by {last}");
        }
    }
}

#[test]
fn devices_are_presets_with_figures_of_ones_own() {
    let preset = |name: &str| settings(json!({ "device": name })).unwrap().figures;
    assert!(preset("hdd").seek_ns > 1_000_000 && preset("hdd").depth == 1);
    let order = ["pmem", "nvme", "sata-ssd"].map(|name| preset(name).read_latency_ns);
    assert!(order.is_sorted());
    let own = json!({ "device": "nvme", "read_latency": "5us", "write_bandwidth": "1MiB/s", "depth": 3 });
    let own = settings(own).unwrap().figures;
    assert_eq!((own.read_latency_ns, own.write_bandwidth, own.depth), (5000, 1 << 20, 3));
    assert_eq!(own.write_latency_ns, preset("nvme").write_latency_ns);
    for (value, says) in [
        (json!({ "device": "tape" }), "unknown variant `tape`"),
        (json!({ "read_latency": "1us" }), "missing field `device`"),
        (json!({ "device": "hdd", "seek": "2s" }), "seek: '2s' is not from 0ns to 1s"),
        (json!({ "device": "hdd", "read_bandwidth": "1KiB/s" }), "read_bandwidth: '1KiB/s' is less than"),
        (json!({ "device": "hdd", "read_bandwidth": "fast" }), "read_bandwidth: 'fast': a rate is"),
        (json!({ "device": "hdd", "depth": 0 }), "depth: 0 is not from 1 to 1024"),
    ] {
        let refused = settings(value).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn what_waits_goes_on_when_the_module_goes() {
    let child = answering(|request| match request {
        Request::Fsync { .. } => Reply::Fsync(Ok(())),
        Request::Write { data, .. } => Reply::Write(Ok(data.len())),
        other => other.operation().failed(braid_contract::Errno::ENOSYS.into()),
    });
    let slow = json!({ "device": "hdd", "write_bandwidth": "64KiB/s", "sync_latency": "1s" });
    let model = Model::new(&settings(slow).unwrap(), child).unwrap();
    assert!(FileSystem::capabilities(&model).holds_up && !FileSystem::capabilities(&model).passthrough);
    let fs: &dyn FileSystem = &model;
    std::thread::scope(|scope| {
        // It would take more than four hours.
        let write = scope
            .spawn(|| fs.write(&Caller::root(), HandleId(1), 0, &vec![0; 1 << 30], WriteFlags::default()));
        while model.0.waits.get() == 0 {
            std::thread::yield_now();
        }
        Module::end(&model);
        assert_eq!(write.join().unwrap().unwrap(), 1 << 30);
    });
    fs.fsync(&Caller::root(), HandleId(1), false).unwrap();
    let waits = Module::figures(&model).into_iter().find(|figure| figure.name == "waits");
    assert_eq!(waits.unwrap().value, braid_contract::FigureValue::Counter(2.0));
}
