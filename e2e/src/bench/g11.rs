//! G11: what registries over one table cost, idle and under changes, and what that grows with.

use std::{fmt, time::Duration};

use anyhow::{Context, Result};
use mcs_core::{time::Clock, timing::DEFAULT_LEASE};
use mcs_runtime::{clock::SystemClock, dynamodb::double::Used};
use tokio::time::sleep;

use super::{
    Scale,
    machine::{self, Cores},
    population::Population,
    progress,
    report::{Report, Row, Unit},
    schedule::Schedule,
    shared::{Pace, Shared},
};

/// Of the endpoints of a Service, where there are as many.
const OF_A_SERVICE: usize = 10;
const CLUSTERS: [usize; 3] = [10, 100, 250];
const ENDPOINTS: [usize; 3] = [1_000, 10_000, 100_000];
/// What the goal is given for.
const JUDGED: (usize, usize) = (100, 100_000);
const MOST_READ: f64 = 2_000.0;
const MOST_WRITTEN: f64 = 1_000.0;
/// What the goal calls nothing: less than a unit in an hour for each 1,000 endpoints.
const MOST_GROWTH: f64 = 1.0;
const RATE: u32 = 10;
const REPLICAS: usize = 2;

/// While nothing changes, time is a tenth: all that is written and read then follows from the lease and the refresh.
const FASTER: u32 = 10;
const IDLE: Pace = Pace {
    lease: Duration::from_secs(DEFAULT_LEASE.as_secs() / FASTER as u64),
    refresh: Duration::from_millis(2_000 / FASTER as u64),
};
/// Under changes it is not, since news are told at a pace of their own.
const REFRESH: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3_600);

/// What is written again weekly, as it is looked at daily: in the hours of 7.5 days.
const REWRITTEN_HOURS: f64 = 180.0;

/// Units of a table in an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Units {
    /// Of all replicas, in each region.
    written: f64,
    /// Of one replica.
    read: f64,
}

/// What one population costs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    clusters: usize,
    endpoints: usize,
    idle: Units,
    changing: Units,
    /// To keep what does not change from being collected; nothing of that falls into the time of a benchmark.
    rewritten: f64,
}

/// Measures it.
///
/// # Errors
/// Something did not start, or a change was not taken.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let mut costs = Vec::new();
    for (clusters, endpoints) in populations(scale) {
        costs.push(cost(scale, cores, clusters / scale.divisor, endpoints / scale.divisor).await?);
    }
    let judged = (JUDGED.0 / scale.divisor, JUDGED.1 / scale.divisor);
    let mut rows = Vec::new();
    for cost in &costs {
        rows.extend(cost.rows((cost.clusters, cost.endpoints) == judged));
    }
    rows.extend(growth(&costs)?);
    let notes = vec![
        format!(
            "G11: {REPLICAS} replicas in one region, each of which serves half of the clusters; {OF_A_SERVICE} endpoints a Service; the \
             stand-in counts units as DynamoDB bills them"
        ),
        format!(
            "idle: a lease of {:?} and a refresh of {:?}, and a tenth of the units counted: all that is written and read then follows from \
             these; with what is written again weekly, a {REWRITTEN_HOURS:.0}th of what is stored",
            IDLE.lease, IDLE.refresh
        ),
        format!(
            "under changes: a lease of {:?} and a refresh of {:?}; each change is of another cluster than the one before",
            scale.lease,
            Pace::of(scale.lease, REFRESH).refresh
        ),
        "what grows with clusters and endpoints is fitted to all of these, by least squares".to_owned(),
        cores.note(),
        machine::versions()?,
        load,
    ];
    Ok(Report { rows, notes })
}

/// All of them, or for a first look the judged one and one that differs from it in either.
fn populations(scale: &Scale) -> Vec<(usize, usize)> {
    let (clusters, endpoints) = JUDGED;
    if scale.pairs < Scale::FULL.pairs {
        return vec![(clusters, endpoints), (clusters, ENDPOINTS[0]), (CLUSTERS[0], endpoints)];
    }
    CLUSTERS.into_iter().flat_map(|clusters| ENDPOINTS.map(|endpoints| (clusters, endpoints))).collect()
}

/// As many endpoints over as many clusters.
fn population(clusters: usize, endpoints: usize) -> Population {
    let clusters = clusters.max(1);
    let services = (endpoints / clusters / OF_A_SERVICE).max(1);
    Population { clusters, services, endpoints: (endpoints / clusters / services).max(1) }
}

async fn cost(scale: &Scale, cores: Cores, clusters: usize, endpoints: usize) -> Result<Cost> {
    let population = population(clusters, endpoints);
    progress(&format!("g11: {population}"));
    let shared = Shared::start(cores, (REPLICAS, REPLICAS), IDLE, population).await?;
    let stored = shared.used().write;
    let at_rest = async {
        sleep(scale.block).await;
        Ok(())
    };
    let idle = over(&shared, FASTER, at_rest).await?;
    drop(shared);

    let pace = Pace::of(scale.lease, REFRESH);
    let shared = Shared::start(cores, (REPLICAS, REPLICAS), pace, population).await?;
    changes(&shared, scale.warm_up).await?;
    shared.used();
    let changing = over(&shared, 1, changes(&shared, scale.block)).await?;
    Ok(Cost { clusters, endpoints, idle, changing, rewritten: stored / REWRITTEN_HOURS })
}

/// Makes changes for a time.
async fn changes(shared: &Shared, time: Duration) -> Result<()> {
    let schedule = Schedule::new(SystemClock.elapsed(), RATE, time);
    for number in 0..schedule.count() {
        sleep(schedule.due(number).since(SystemClock.elapsed())).await;
        let lane = usize::try_from(number)? % shared.members().len();
        shared.members().change(lane, number.into()).await.with_context(|| format!("change {number}"))?;
    }
    sleep(schedule.due(schedule.count()).since(SystemClock.elapsed())).await;
    Ok(())
}

/// What is used in an hour, as in this time, which is so much faster than an hour.
async fn over(shared: &Shared, faster: u32, what: impl Future<Output = Result<()>>) -> Result<Units> {
    let since = SystemClock.elapsed();
    shared.used();
    what.await?;
    let Used { read, write, .. } = shared.used();
    let share = HOUR.div_duration_f64(SystemClock.elapsed().since(since)) / f64::from(faster);
    Ok(Units { written: write * share, read: read * share / f64::from(u32::try_from(REPLICAS)?) })
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} clusters, {} endpoints", self.clusters, self.endpoints)
    }
}

impl Cost {
    fn idle_written(&self) -> f64 {
        self.idle.written + self.rewritten
    }

    fn rows(&self, is_judged: bool) -> [Row; 4] {
        let row = |what: &str, units| Row::new("G11", format!("{self}: {what}"), Unit::UnitsAnHour, units);
        let judged = |most: f64| is_judged.then_some(most);
        [
            Row { most: judged(MOST_WRITTEN), ..row("idle, written in a region", self.idle_written()) },
            Row { most: judged(MOST_READ), ..row("idle, read by a replica", self.idle.read) },
            row(&format!("{RATE} changes/s, written in a region"), self.changing.written),
            row(&format!("{RATE} changes/s, read by a replica"), self.changing.read),
        ]
    }
}

/// What is written and read for each cluster and each 1,000 endpoints.
fn growth(costs: &[Cost]) -> Result<Vec<Row>> {
    type Pick = fn(&Cost) -> f64;
    let picks: [(&str, Pick, bool); 4] = [
        ("idle, written", Cost::idle_written, true),
        ("idle, read", |cost| cost.idle.read, true),
        ("changes, written", |cost| cost.changing.written, false),
        ("changes, read", |cost| cost.changing.read, false),
    ];
    let mut rows = Vec::new();
    for (what, pick, is_judged) in picks {
        #[expect(clippy::cast_precision_loss, reason = "counts of a population")]
        let points: Vec<_> = costs
            .iter()
            .map(|cost| ([cost.clusters as f64, cost.endpoints as f64 / 1e3], pick(cost)))
            .collect();
        let [fixed, cluster, endpoints] = fit(&points).context("what grows cannot be told from so few")?;
        let row = |of: &str, units| Row::new("G11", format!("{what}: {of}"), Unit::UnitsAnHour, units);
        rows.extend([
            row("whatever the population", fixed),
            row("for each cluster", cluster),
            Row { most: is_judged.then_some(MOST_GROWTH), ..row("for each 1,000 endpoints", endpoints) },
        ]);
    }
    Ok(rows)
}

/// The plane that comes nearest to all points, by least squares: its height at the origin, and its two slopes. None where
/// the points do not tell them.
fn fit(points: &[([f64; 2], f64)]) -> Option<[f64; 3]> {
    let mut sums = [[0.0; 4]; 3];
    for ([a, b], height) in points {
        let terms = [1.0, *a, *b];
        for (row, left) in sums.iter_mut().zip(terms) {
            for (sum, right) in row.iter_mut().zip(terms.into_iter().chain([*height])) {
                *sum += left * right;
            }
        }
    }
    for pivot in 0..3 {
        let scale = sums[pivot][pivot];
        if scale.abs() < f64::EPSILON {
            return None;
        }
        sums[pivot].iter_mut().for_each(|sum| *sum /= scale);
        let by = sums[pivot];
        for (place, row) in sums.iter_mut().enumerate() {
            if place != pivot {
                let share = row[pivot];
                row.iter_mut().zip(by).for_each(|(sum, by)| *sum -= share * by);
            }
        }
    }
    Some(sums.map(|[.., solution]| solution))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_told_from_what_does_not() {
        let points = [(10.0, 1.0), (10.0, 100.0), (250.0, 1.0), (250.0, 100.0), (100.0, 10.0)];
        let points = points.map(|(a, b)| ([a, b], 360.0 + 4.0 * a + 0.25 * b));
        let fitted = fit(&points).expect("they tell it");
        for (fitted, expected) in fitted.into_iter().zip([360.0, 4.0, 0.25]) {
            assert!((fitted - expected).abs() < 1e-6, "{fitted} instead of {expected}");
        }
        assert_eq!(fit(&points[..1]), None);
    }

    #[test]
    fn a_population_has_the_endpoints_that_it_is_to_have() {
        let of = |clusters, endpoints| {
            let of = population(clusters, endpoints);
            (of.services, of.endpoints, of.total())
        };
        assert_eq!([of(10, 100_000), of(250, 1_000)], [(1_000, 10, 100_000), (1, 4, 1_000)]);
        assert_eq!(of(100, 10_000), (10, 10, 10_000));
        assert_eq!(of(0, 20), (2, 10, 20));
    }
}
