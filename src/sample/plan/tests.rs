use super::*;
use crate::sample::prediction::Prediction;

fn request(args: &SampleArgs, steps: usize) -> ScheduleRequest<'_> {
    ScheduleRequest { scheduler: Scheduler::Discrete, steps, image_seq_len: 0, ays: None, args }
}

fn plan(steps: usize, custom: &[f32]) -> Plan {
    Plan::new(&mut Denoiser::new(Prediction::Epsilon), &request(&SampleArgs::default(), steps), custom)
        .unwrap()
}

#[test]
fn custom_sigmas_replace_the_schedule() {
    let custom = [14.6, 7.0, 3.0, 1.0, 0.3, 0.0];
    assert_eq!(plan(9, &custom), Plan { sigmas: custom.to_vec(), steps: 5 });
    assert_eq!(plan(3, &custom).steps, 3);
    assert_eq!(plan(4, &[1.0]).sigmas.len(), 5);
    let bad = |custom: &[f32]| {
        let args = SampleArgs::default();
        Plan::new(&mut Denoiser::new(Prediction::Flow), &request(&args, 4), custom).unwrap_err().to_string()
    };
    assert!(bad(&[1.0, f32::NAN, 0.0]).contains("custom_sigmas[1]"));
    assert!(bad(&[1.0, 0.0, 0.0]).contains("custom_sigmas[1]"));
    assert!(bad(&[1.0, -0.5]).contains("custom_sigmas[1]"));
}

/// Progress of the recorded library: strength 0.5 of 4 steps runs 3, 0.3 of 5 runs 2, 0 runs 1.
#[test]
fn strength_is_a_share_of_the_steps() {
    let denoiser = Denoiser::new(Prediction::Epsilon);
    let run = |steps: usize, strength: f32| {
        let mut plan = plan(steps, &[]);
        let all = plan.sigmas.clone();
        plan.start_from_image(strength, &denoiser, &SampleArgs::default()).unwrap();
        assert_eq!(plan.sigmas[..], all[all.len() - plan.sigmas.len()..]);
        assert_eq!(plan.steps, plan.sigmas.len() - 1);
        plan.steps
    };
    assert_eq!(run(4, 0.5), 3);
    assert_eq!(run(5, 0.3), 2);
    assert_eq!(run(5, 0.6), 4);
    assert_eq!(run(5, 0.0), 1);
    assert_eq!(run(5, 0.99), 5);
    assert_eq!(run(5, 1.0), 5);
    assert_eq!(run(5, 2.0), 5);
    assert_eq!(run(1, 0.5), 1);
    let mut odd = plan(4, &[]);
    assert!(odd.start_from_image(-1.0, &denoiser, &SampleArgs::default()).is_err());
    assert!(odd.start_from_image(f32::NAN, &denoiser, &SampleArgs::default()).is_err());
}

#[test]
fn strength_is_a_noise_level() {
    let denoiser = Denoiser::new(Prediction::Epsilon);
    let start = |strength: f32, args: &str| {
        let mut plan = plan(10, &[]);
        plan.start_from_image(strength, &denoiser, &SampleArgs::parse(args)).unwrap();
        plan.sigmas
    };
    let all = plan(10, &[]).sigmas;
    // Level 0.75 is sigma 3.
    let sigmas = start(0.75, "strength_as_noise_level=true");
    assert!(sigmas[0] <= 3.0 && all[all.len() - sigmas.len() - 1] > 3.0);
    let forced = start(0.75, "strength_as_noise_level=1;force_first_sigma=1");
    assert_eq!((forced[0], &forced[1..]), (3.0, &sigmas[1..]));
    assert_eq!(start(0.0, "strength_as_noise_level=1").len(), 2);
    assert_eq!(start(0.75, "force_first_sigma=1"), start(0.75, ""));
}

#[test]
fn hires_runs_about_as_many_steps_as_asked_for() {
    let args = SampleArgs::default();
    let mut denoiser = Denoiser::new(Prediction::Epsilon);
    let mut run = |steps, strength, custom: &[f32]| {
        hires_sigmas(&mut denoiser, &request(&args, 1), (steps, 20), strength, custom).unwrap().len() - 1
    };
    assert_eq!(run(2, 0.5, &[]), 3);
    assert_eq!(run(0, 1.0, &[]), 20);
    assert_eq!(run(10, 0.7, &[]), 10);
    assert_eq!(run(1, 0.0001, &[]), 2);
    assert_eq!(run(5, f32::NAN, &[]), 5);
    assert_eq!(run(5, 0.5, &[1.0, 0.5, 0.0]), 2);
    assert_eq!(run(5, 0.5, &[1.0]), 6);
}

#[test]
fn two_networks_share_the_sigmas() {
    let plan = Plan { sigmas: vec![1.0, 0.9, 0.8, 0.5, 0.0], steps: 4 };
    assert_eq!(plan.steps_above(0.875), 2);
    assert_eq!(plan.steps_above(2.0), 0);
    let (high, low) = plan.clone().split(2);
    assert_eq!((high.unwrap(), low.unwrap()), (vec![1.0, 0.9, 0.8], vec![0.8, 0.5, 0.0]));
    assert_eq!(plan.clone().split(0).0, None);
    assert_eq!(plan.split(9).1, None);
}

#[test]
fn samplers_have_their_own_defaults() {
    assert_eq!(eta(None, Method::EulerAncestral), 1.0);
    assert_eq!(eta(None, Method::Euler), 0.0);
    assert_eq!(eta(Some(0.3), Method::Tcd), 0.3);
    assert_eq!(scheduler_of(Method::Tcd), Some(Scheduler::Lcm));
    assert_eq!(scheduler_of(Method::Heun), None);
}
