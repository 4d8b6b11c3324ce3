//! Times and ratios: what blocks of a measurement come to.

use std::{fmt, time::Duration};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// Times in microseconds, to three digits.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Times {
    /// No time yet.
    ///
    /// # Errors
    /// None that can happen: the number of digits is one that the histogram takes.
    pub fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    /// The histogram of `times`.
    ///
    /// # Errors
    /// As [`Times::record`].
    pub fn of(times: impl IntoIterator<Item = Duration>) -> Result<Self> {
        let mut all = Self::new()?;
        times.into_iter().try_for_each(|time| all.record(time))?;
        Ok(all)
    }

    /// Takes one time.
    ///
    /// # Errors
    /// None for a time that anyone would wait for.
    pub fn record(&mut self, time: Duration) -> Result<()> {
        self.0.record(u64::try_from(time.as_micros()).context("a time of millennia")?)?;
        Ok(())
    }

    /// Takes all times of `other`.
    ///
    /// # Errors
    /// As [`Times::record`].
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.0.add(&other.0)?;
        Ok(())
    }

    /// How many times were taken.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether none was taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that a share of `quantile` does not exceed, in milliseconds.
    pub fn millis(&self, quantile: f64) -> f64 {
        Duration::from_micros(self.0.value_at_quantile(quantile)).as_secs_f64() * 1000.0
    }
}

/// All times of some blocks together.
///
/// # Errors
/// As [`Times::record`].
pub fn together<'a>(blocks: impl IntoIterator<Item = &'a Times>) -> Result<Times> {
    let mut all = Times::new()?;
    blocks.into_iter().try_for_each(|block| all.add(block))?;
    Ok(all)
}

/// The middle of some numbers: of an even count, halfway between the two in the middle. None of none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<_> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted.get(middle).copied(),
        _ => Some(f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, *sorted.get(middle)?)),
    }
}

/// How two things that took turns compare. What a load of the machine does to one block it does to the other of its
/// pair, so the ratio within a pair says more than that of two sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// The median over the pairs.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Ratios {
    /// The ratios of the first to the second of each pair; none where no pair has one.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let ratios: Vec<_> =
            pairs.into_iter().map(|(one, other)| one / other).filter(|ratio| ratio.is_finite()).collect();
        Some(Self {
            median: median(ratios.iter().copied())?,
            min: ratios.iter().copied().reduce(f64::min)?,
            max: ratios.iter().copied().reduce(f64::max)?,
        })
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, min, max } = self;
        write!(f, "{median:.2} ({min:.2} to {max:.2})")
    }
}

/// Measures two things in turns, `pairs` times: the first, the second, the first, the second.
///
/// # Errors
/// The first that a measurement gives.
pub async fn in_turns<A, B>(
    pairs: u16,
    mut first: impl AsyncFnMut(u16) -> Result<A>,
    mut second: impl AsyncFnMut(u16) -> Result<B>,
) -> Result<Vec<(A, B)>> {
    let mut blocks = Vec::with_capacity(usize::from(pairs));
    for pair in 1..=pairs {
        blocks.push((first(pair).await?, second(pair).await?));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_ratio_of_each_pair_is_taken_before_the_median_so_that_a_loaded_pair_does_not_decide() {
        // The third pair met a load that made both ten times as slow.
        let ratios = Ratios::of([(1.0, 2.0), (3.0, 4.0), (20.0, 25.0)]);
        assert_eq!(ratios, Some(Ratios { median: 0.75, min: 0.5, max: 0.8 }));
        assert_eq!(ratios.map(|ratios| ratios.to_string()).as_deref(), Some("0.75 (0.50 to 0.80)"));
    }

    #[test]
    fn a_pair_without_a_ratio_does_not_count_and_without_any_there_is_none() {
        assert_eq!(Ratios::of([(1.0, 0.0), (1.0, 4.0)]), Some(Ratios { median: 0.25, min: 0.25, max: 0.25 }));
        assert_eq!(Ratios::of([(1.0, 0.0)]), None);
    }

    #[test]
    fn the_median_of_an_even_count_is_halfway_between_the_two_in_the_middle() {
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median([4.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn quantiles_are_taken_over_all_blocks_together() {
        let block = |millis: &[u64]| Times::of(millis.iter().copied().map(Duration::from_millis));
        let blocks = [block(&[1, 2, 3]).expect("times"), block(&[100]).expect("times")];
        let all = together(&blocks).expect("times");
        assert_eq!(all.len(), 4);
        // The histogram keeps three digits.
        assert_eq!([0.5, 1.0].map(|quantile| all.millis(quantile).round()), [2.0, 100.0]);
    }

    #[tokio::test]
    async fn blocks_take_turns() {
        let order = RefCell::new(Vec::new());
        let note = async |name, pair| {
            order.borrow_mut().push((name, pair));
            Ok(pair)
        };
        let blocks = in_turns(2, async |pair| note("A", pair).await, async |pair| note("B", pair).await);
        assert_eq!(blocks.await.expect("blocks"), [(1, 1), (2, 2)]);
        assert_eq!(order.into_inner(), [("A", 1), ("B", 1), ("A", 2), ("B", 2)]);
    }
}
