//! Estimates of each tier's performance from incomplete knowledge; `tiers`
//! passes them to policies.

/// The known rates of a tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownRates {
    /// Observed rates in bytes a second, read and written.
    pub learned: [Option<f64>; 2],
    /// Rates through the page cache.
    pub guess: [Option<f64>; 2],
    /// Its configured weight, in MB/s.
    pub weight: Option<f64>,
}

/// Bytes a second of a tier if no tier has figures.
const SOME: f64 = 100e6;
/// Bytes a second of a weight of 1: weights are MB/s.
pub const WEIGHT_UNIT: f64 = 1e6;

/// Estimated bytes a second of each tier, read and written. For an unobserved
/// direction, the estimate is by weight; or by the rate through the page cache;
/// or by the other direction, if tiers are alike in that; or by the other
/// tiers.
pub fn believed(tiers: &[KnownRates]) -> Vec<[f64; 2]> {
    let [read, write] = [0, 1].map(|at| {
        let learned: Vec<Option<f64>> = tiers.iter().map(|tier| tier.learned[at]).collect();
        let unit = ratio(&learned, &tiers.iter().map(|tier| tier.weight).collect::<Vec<_>>());
        let given = |tier: &KnownRates| Some(tier.weight? * unit.unwrap_or(WEIGHT_UNIT));
        let known = tiers
            .iter()
            .zip(learned)
            .map(|(tier, learned)| learned.or_else(|| given(tier)).or(tier.guess[at]));
        known.collect::<Vec<_>>()
    });
    let factor = ratio(&read, &write).unwrap_or(1.0);
    let other = |own: &[Option<f64>], other: &[Option<f64>], factor: f64| {
        let guess = own.iter().zip(other).map(|(own, other)| own.or_else(|| Some((*other)? * factor)));
        with_means(&guess.collect::<Vec<_>>(), SOME)
    };
    let (reads, writes) = (other(&read, &write, factor), other(&write, &read, 1.0 / factor));
    reads.into_iter().zip(writes).map(|(read, write)| [read, write]).collect()
}

/// The weights of tiers in MB/s, as given or, if not, as measured; `None` where
/// there are none. Given ones may be wrong all together: a measured tier is
/// weighed against them by their measurements too.
pub fn weights(given: &[Option<f64>], measured: &[Option<f64>]) -> Vec<Option<f64>> {
    let scale = ratio(given, measured).unwrap_or(1.0);
    given.iter().zip(measured).map(|(given, measured)| given.or(measured.map(|m| m * scale))).collect()
}

/// The mean of `a / b` where both are known.
fn ratio(a: &[Option<f64>], b: &[Option<f64>]) -> Option<f64> {
    let ratios: Vec<f64> = a.iter().zip(b).filter_map(|(a, b)| Some((*a)? / (*b)?)).collect();
    (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

/// The figures; unknown ones become the mean of the others, or `otherwise` if
/// none is known.
pub fn with_means(figures: &[Option<f64>], otherwise: f64) -> Vec<f64> {
    let known: Vec<f64> = figures.iter().flatten().copied().collect();
    let typical = if known.is_empty() { otherwise } else { known.iter().sum::<f64>() / known.len() as f64 };
    figures.iter().map(|figure| figure.unwrap_or(typical)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(read: Option<f64>, write: Option<f64>, weight: Option<f64>) -> KnownRates {
        KnownRates { learned: [read, write], guess: [None; 2], weight }
    }

    #[test]
    fn what_is_not_known_is_taken_from_what_is() {
        assert_eq!(believed(&[KnownRates::default(); 2]), [[SOME; 2]; 2]);
        let weights = [known(None, None, Some(4.0)), known(None, None, Some(1.0))];
        assert_eq!(believed(&weights), [[4e6; 2], [1e6; 2]]);
        // An observed tier calibrates the weights.
        let seen = [known(None, Some(200.0), Some(4.0)), known(None, None, Some(1.0))];
        assert_eq!(believed(&seen)[1][1], 50.0);
        // Reads are to writes as they are on the others.
        let one_way = [known(Some(400.0), Some(200.0), None), known(None, Some(60.0), None)];
        assert_eq!(believed(&one_way), [[400.0, 200.0], [120.0, 60.0]]);
        // A guess is better than nothing, and worse than a weight.
        let guess = KnownRates { guess: [Some(1e9); 2], ..KnownRates::default() };
        assert_eq!(believed(&[guess])[0], [1e9; 2]);
        assert_eq!(believed(&[KnownRates { weight: Some(3.0), ..guess }])[0], [3e6; 2]);
        let nothing = [known(None, Some(200.0), None), known(None, Some(100.0), None), KnownRates::default()];
        assert_eq!(believed(&nothing), [[200.0; 2], [100.0; 2], [150.0; 2]]);
    }

    #[test]
    fn a_measured_tier_is_weighed_against_given_weights_as_they_are_meant() {
        let some = |figures: [f64; 3]| figures.map(|figure| (figure > 0.0).then_some(figure)).to_vec();
        let weighed = |given, measured| weights(&some(given), &some(measured));
        // In MB/s, as the others have no other figures.
        assert_eq!(weighed([400.0, 120.0, 0.0], [0.0, 0.0, 50.0]), some([400.0, 120.0, 50.0]));
        // They were given as parts, or as the tiers' read rates.
        assert_eq!(weighed([4.0, 1.0, 0.0], [400.0, 100.0, 50.0]), some([4.0, 1.0, 0.5]));
        assert_eq!(weighed([400.0, 120.0, 0.0], [200.0, 60.0, 25.0]), some([400.0, 120.0, 50.0]));
        assert_eq!(weighed([0.0; 3], [200.0, 60.0, 0.0]), some([200.0, 60.0, 0.0]));
    }
}
