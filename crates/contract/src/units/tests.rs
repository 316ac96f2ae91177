//! Every accepted form, and the errors for others.

use super::*;

#[test]
fn sizes_in_every_unit() {
    for (text, size) in [
        ("0", 0),
        ("4096", 4096),
        ("2KiB", 2048),
        ("2MiB", 2 << 20),
        ("3GiB", 3 << 30),
        ("1TiB", 1 << 40),
        ("2KB", 2000),
        ("2MB", 2_000_000),
        ("3GB", 3_000_000_000),
        ("5TB", 5_000_000_000_000),
        ("10K", 10 << 10),
        ("10M", 10 << 20),
        ("10G", 10 << 30),
        ("10T", 10 << 40),
        ("10g", 10 << 30),
        ("2mib", 2 << 20),
        ("2Mi", 2 << 20),
        ("5 GiB", 5 << 30),
        ("5 G", 5 << 30),
        ("2kB", 2000),
        ("2mb", 2_000_000),
        ("7B", 7),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(parse_size(text), Ok(size), "{text}");
    }
}

#[test]
fn what_is_no_size_is_refused_with_the_forms_of_one() {
    for text in [
        "1.5GiB", "-1", "+1", "MiB", "", "2PiB", "5%", "２MiB", "1_000", "2  MiB", "2 ", " 2", "2Gb/s",
        "2Gi B", "2Ki b", "KB",
    ] {
        assert_eq!(parse_size(text), Err(format!("a size is {SIZE_FORMS}")), "{text}");
    }
    for text in ["18446744073709551616", "16777216TiB", "99999999999999999999999999TiB"] {
        assert_eq!(parse_size(text), Err("the largest size is 16777215TiB".into()), "{text}");
    }
}

#[test]
fn percentages() {
    for (text, percent) in [("0%", 0.0), ("5%", 5.0), ("0.5%", 0.5), ("100%", 100.0), ("5 %", 5.0)] {
        assert_eq!(parse_percent(text), Ok(percent), "{text}");
    }
    for text in ["5", "%", "5  %", "-5%", "five%", "1e1%", "inf%", "nan%", ".%", "5%%"] {
        assert_eq!(parse_percent(text), Err(format!("a percentage is {PERCENT_FORMS}")), "{text}");
    }
    assert_eq!(parse_percent("100.1%"), Err("the largest percentage is 100%".into()));
}

#[test]
fn sizes_are_shown_with_three_digits() {
    for (bytes, text) in [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1024, "1.00 KiB"),
        (10 << 20, "10.0 MiB"),
        ((10 << 20) - 1, "10.0 MiB"),
        (100 << 20, "100 MiB"),
        (1023 << 20, "1.00 GiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(show_size(bytes), text, "{bytes}");
    }
}

#[test]
fn written_sizes_read_back() {
    for (bytes, text) in
        [(0, "0"), (1, "1"), (65536, "64KiB"), (2 << 20, "2MiB"), (3 << 40, "3TiB"), (1500, "1500")]
    {
        assert_eq!(write_size(bytes), text);
        assert_eq!(parse_size(text), Ok(bytes));
    }
}

#[test]
fn durations() {
    assert_eq!(parse_duration("200ms"), Ok(200_000_000));
    assert_eq!(parse_duration("3s"), Ok(3_000_000_000));
    assert_eq!(parse_duration("3 s"), Ok(3_000_000_000));
    assert_eq!(parse_duration("2d"), Ok(172_800_000_000_000));
    for wrong in ["", "5", "ms", "1.5s", "5  s", "5min", "99999999999999d"] {
        assert!(parse_duration(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn rates() {
    assert_eq!(parse_rate("50MiB/s"), Ok(50 << 20));
    assert_eq!(parse_rate("7/s"), Ok(7));
    assert_eq!(parse_rate("50 M/s"), Ok(50 << 20));
    assert_eq!(parse_rate("50MiB"), Ok(50 << 20));
    for text in ["", "/s", "fast", "50MB /s", "50Mbit/s", "1MiB/s/s"] {
        assert!(parse_rate(text).is_err(), "{text}");
    }
}

#[test]
fn truth_values() {
    for (yes, no) in [("yes", "no"), ("true", "false"), ("on", "off"), ("Yes", "NO")] {
        assert_eq!((parse_truth(yes), parse_truth(no)), (Ok(true), Ok(false)));
    }
    for text in ["", "1", "0", "y", "truth"] {
        assert_eq!(parse_truth(text), Err(format!("write {TRUTH_FORMS}")), "{text}");
    }
}

#[test]
fn seconds_are_within_bounds() {
    for (text, millis) in [("2", 2000), ("0.5s", 500), ("0.1", 100), ("5s", 5000)] {
        assert_eq!(parse_seconds(text, 0.1..=5.0), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "s", "0", "5.1", "-1", "nan", "inf", "1 s", "1m"] {
        assert_eq!(parse_seconds(text, 0.1..=5.0), Err("write seconds, from 0.1 to 5".into()), "{text}");
    }
}

#[test]
fn sizes_that_are_needed_are_not_shown_as_less() {
    for (bytes, text) in
        [(0, "0 bytes"), ((1 << 20) - 1, "1048575 bytes"), (1 << 20, "1.0 MiB"), ((1 << 20) + 1, "1.1 MiB")]
    {
        assert_eq!(show_size_up(bytes), text);
    }
}

#[test]
fn latencies_have_two_digits_at_least() {
    let shown = [999, 1_000, 9_940, 123_456, 1_500_000, 84_000_000, 2_100_000_000].map(show_latency);
    assert_eq!(shown, ["999 ns", "1.0 µs", "9.9 µs", "123 µs", "1.5 ms", "84 ms", "2.1 s"]);
}

#[test]
fn durations_have_two_units() {
    let shown = [0.9, 59.0, 65.0, 7260.0, 176_400.0].map(show_duration);
    assert_eq!(shown, ["0 s", "59 s", "1 min 5 s", "2 h 1 min", "2 d 1 h"]);
}
