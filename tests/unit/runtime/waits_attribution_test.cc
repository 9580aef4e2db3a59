// SPDX-License-Identifier: Apache-2.0
// Where time goes, on logs written by hand: every number follows from the definition.
#include <gtest/gtest.h>

#include "runtime/waits/attribution.h"
#include "runtime/waits/step_work.h"
#include "runtime/waits/timeline.h"

namespace tandem::runtime {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TimeSpan span(Activity activity, double begin_ms, double end_ms, int step = 0, int layer = -1) {
  TimeSpan result;
  result.activity = activity;
  result.begin_ns = static_cast<std::int64_t>(begin_ms * kMs);
  result.end_ns = static_cast<std::int64_t>(end_ms * kMs);
  result.lane = is_op(activity) ? Lane::kCompute : Lane::kHost;
  result.step = step;
  result.layer = static_cast<std::int16_t>(layer);
  return result;
}

RankLog log_of(int rank, std::vector<TimeSpan> spans, int steps = 1) {
  RankLog log;
  log.rank = rank;
  log.ceilings = {100, 1};  // GB/s, TFLOP/s
  for (int s = 0; s < steps; ++s) log.steps.push_back({s, 1, 0, 1});
  log.spans = std::move(spans);
  return log;
}

double ms(const AttributedStep& step, WaitRow row) { return step.ns(row) / kMs; }

/// The cells of a step are its whole time, nothing twice and nothing lost.
void expect_complete(const Attribution& result) {
  for (const auto& rank : result.steps)
    for (const AttributedStep& step : rank) {
      double sum = 0;
      for (const WaitCell& cell : step.cells) sum += cell.ns;
      EXPECT_NEAR(sum, static_cast<double>(step.end_ns - step.begin_ns), 1.0);
    }
}

TEST(Timeline, TheInnermostOfNestedSpansHasTheInstant) {
  const std::vector<TimeSpan> spans = {span(Activity::kSubmit, 0, 10), span(Activity::kHead, 2, 5),
                                       span(Activity::kAllGather, 3, 4)};
  const auto pieces = rank_timeline(spans, true);
  ASSERT_EQ(pieces.size(), 5u);
  const std::size_t expected[] = {0, 1, 2, 1, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(pieces[i].span, expected[i]) << i;
  EXPECT_EQ(pieces[1].begin_ns, 2 * kMs);
  EXPECT_EQ(pieces[4].end_ns, 10 * kMs);
}

TEST(Timeline, OverlappingKernelsGoToTheOldestUnfinished) {
  const std::vector<TimeSpan> spans = {span(Activity::kHead, 0, 4), span(Activity::kSample, 3, 6)};
  const auto pieces = rank_timeline(spans, false);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].end_ns, 4 * kMs);
  EXPECT_EQ(pieces[1].size_ns(), 2 * kMs);
}

TEST(Timeline, CommunicationCountsOnlyWhileComputeWaits) {
  TimeSpan hidden = span(Activity::kAllReduce, 1, 7);
  hidden.lane = Lane::kComm;
  const std::vector<TimeSpan> spans = {span(Activity::kHead, 0, 5), hidden,
                                       span(Activity::kSample, 8, 9),
                                       span(Activity::kSubmit, 0, 10)};
  std::int64_t exposed = 0, host = 0;
  for (const Piece& piece : rank_timeline(spans, false)) {
    if (piece.span == 1) exposed += piece.size_ns();
    if (piece.span == 3) host += piece.size_ns();
  }
  EXPECT_EQ(exposed, 2 * kMs);
  EXPECT_EQ(host, 2 * kMs);  // 7..8 and 9..10
}

TEST(Attribution, SplitsAnOpAtItsFloor) {
  TimeSpan op = span(Activity::kDown, 0, 10);
  op.bytes = 3e8;  // 3 ms at 100 GB/s
  op.flops = 4e9;  // 4 ms at 1 TFLOP/s
  TimeSpan quick = span(Activity::kHead, 10, 11);
  quick.bytes = 5e8;  // floor above what it took: all of it is at the ceiling
  const Attribution result = attribute({log_of(0, {op, quick})});
  ASSERT_EQ(result.steps[0].size(), 1u);
  const AttributedStep& step = result.steps[0][0];
  EXPECT_NEAR(step.ns(WaitRow::kFloor, Activity::kDown) / kMs, 4, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kAbove, Activity::kDown) / kMs, 6, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kFloor, Activity::kHead) / kMs, 1, 1e-9);
  EXPECT_EQ(step.ns(WaitRow::kAbove, Activity::kHead), 0);
  expect_complete(result);
}

/// What is known of an op is known on average only: of two alike, one may take less.
TEST(Attribution, OpsOfAnActivityMakeUpForEachOther) {
  TimeSpan slow = span(Activity::kDown, 0, 12, 0, 0), quick = span(Activity::kDown, 12, 20, 0, 1);
  for (TimeSpan* op : {&slow, &quick}) {
    op->bytes = 3e8;  // 3 ms at 100 GB/s
    op->kernels = 1;
    op->fence_ns = 7 * kMs;
  }
  const Attribution result = attribute({log_of(0, {slow, quick})});
  const AttributedStep& step = result.steps[0][0];
  EXPECT_NEAR(step.ns(WaitRow::kFloor) / kMs, 6, 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kFences) / kMs, 14, 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kAbove) / kMs, 0, 1e-6);
  expect_complete(result);
}

TEST(Attribution, KernelsEndsAreFencesAndAttentionWaitsForTiles) {
  TimeSpan attention = span(Activity::kAttend, 0, 10, 0, 0);
  attention.bytes = 3e8;  // 3 ms at 100 GB/s
  attention.kernels = 2;
  attention.stamps = 1;
  attention.fence_ns = 0.5 * kMs;
  attention.tile_share = 0.25f;
  TimeSpan short_op = span(Activity::kDown, 11, 12, 0, 0);  // less than the ends of its kernels
  short_op.kernels = 3;
  short_op.stamps = 1;
  short_op.fence_ns = 0.5 * kMs;
  const Attribution result =
      attribute({log_of(0, {attention, span(Activity::kStamps, 10, 11), short_op,
                            span(Activity::kLayers, 12, 42, 0, 3)})});
  const AttributedStep& step = result.steps[0][0];
  // 9.5 + 0.5 ms without the stamps' own ends, and three more layers of which each took as long.
  EXPECT_NEAR(step.ns(WaitRow::kFloor, Activity::kAttend) / kMs, 4 * 3, 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kFences, Activity::kCount) / kMs, 4 * (1 + 0.5), 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kTiles, Activity::kAttend) / kMs, 4 * 2.5, 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kAbove, Activity::kAttend) / kMs, 4 * 3, 1e-6);
  EXPECT_EQ(step.ns(WaitRow::kAbove, Activity::kDown), 0);
  EXPECT_NEAR(step.ns(WaitRow::kFences, Activity::kStamps) / kMs, 1 + 0.5 + 0.5, 1e-6);
  expect_complete(result);
}

TEST(Attribution, SkewIsTheWaitBeyondTheSmallestOverRanks) {
  // Rank 1 computes 8 ms longer; the transfer itself takes 2 ms. Rank 1's clock may be off: its
  // times are shifted by an hour and skew must not notice.
  const double hour = 3.6e6;
  const Attribution result =
      attribute({log_of(0, {span(Activity::kDown, 0, 4), span(Activity::kAllReduce, 4, 14)}),
                 log_of(1, {span(Activity::kDown, hour, hour + 12),
                            span(Activity::kAllReduce, hour + 12, hour + 14)})});
  EXPECT_NEAR(ms(result.steps[0][0], WaitRow::kSkew), 8, 1e-9);
  EXPECT_NEAR(ms(result.steps[0][0], WaitRow::kTransfer), 2, 1e-9);
  EXPECT_NEAR(ms(result.steps[1][0], WaitRow::kSkew), 0, 1e-9);
  EXPECT_NEAR(ms(result.steps[1][0], WaitRow::kTransfer), 2, 1e-9);
  EXPECT_EQ(result.arrivals[1].last, 1);
  EXPECT_EQ(result.arrivals[0].last, 0);
  EXPECT_EQ(result.arrivals[0].collectives, 1);
  expect_complete(result);
}

TEST(Attribution, EveryPhaseHasItsRow) {
  const Attribution result =
      attribute({log_of(0, {span(Activity::kSchedule, 0, 1), span(Activity::kIdle, 1, 5),
                            span(Activity::kSchedule, 5, 6), span(Activity::kDeliver, 6, 8),
                            span(Activity::kSubmit, 9, 20), span(Activity::kMap, 10, 13),
                            span(Activity::kDown, 15, 20)})});
  const AttributedStep& step = result.steps[0][0];
  EXPECT_EQ(step.begin_ns, 0);
  EXPECT_NEAR(step.ns(WaitRow::kHost, Activity::kSchedule) / kMs, 2, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kHost, Activity::kDeliver) / kMs, 2, 1e-9);
  EXPECT_NEAR(ms(step, WaitRow::kIdle), 4, 1e-9);
  EXPECT_NEAR(ms(step, WaitRow::kMapping), 3, 1e-9);
  EXPECT_NEAR(ms(step, WaitRow::kLaunch), 3, 1e-9);  // 9..10 and 13..15
  EXPECT_NEAR(ms(step, WaitRow::kUnexplained), 1, 1e-9);
  expect_complete(result);
}

TEST(Attribution, AFollowerWaitsForWhatRankZeroDoes) {
  // Step 1: rank 0 ends step 0 late (a slow rank), then schedules, delivers and sends.
  const Attribution result =
      attribute({log_of(0,
                        {span(Activity::kDown, 0, 10, 0), span(Activity::kSchedule, 10, 12, 0),
                         span(Activity::kDeliver, 12, 17, 0), span(Activity::kSendPlan, 17, 18, 0),
                         span(Activity::kSubmit, 18, 25, 1), span(Activity::kDown, 19, 25, 1)},
                        2),
                 log_of(1,
                        {span(Activity::kDown, 0, 7, 0), span(Activity::kAwaitPlan, 7, 20, 0),
                         span(Activity::kDown, 20, 25, 1)},
                        2)});
  const AttributedStep& step = result.steps[1][1];
  EXPECT_EQ(step.begin_ns, 7 * kMs);
  EXPECT_NEAR(step.ns(WaitRow::kSkew, Activity::kAwaitPlan) / kMs, 3, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kHost, Activity::kSchedule) / kMs, 2, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kHost, Activity::kDeliver) / kMs, 5, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kHost, Activity::kSendPlan) / kMs, 1, 1e-9);
  EXPECT_NEAR(step.ns(WaitRow::kHost, Activity::kAwaitPlan) / kMs, 2, 1e-9);  // on its way
  expect_complete(result);
}

TEST(Attribution, LayersWithoutStampsGoLikeThoseWithThem) {
  TimeSpan rest = span(Activity::kLayers, 6, 18, 0, 3);
  RankLog log = log_of(0, {span(Activity::kDown, 0, 3, 0, 0), span(Activity::kAttend, 3, 4, 0, 0),
                           rest, span(Activity::kHead, 4, 6, 0)});
  log.synchronous = false;
  const Attribution result = attribute({log});
  const AttributedStep& step = result.steps[0][0];
  EXPECT_NEAR(step.ns(WaitRow::kAbove, Activity::kDown) / kMs, 3 + 9, 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kAbove, Activity::kAttend) / kMs, 1 + 3, 1e-6);
  EXPECT_NEAR(step.ns(WaitRow::kAbove, Activity::kHead) / kMs, 2, 1e-6);
  expect_complete(result);
}

TEST(Attribution, LogsTravelUnchanged) {
  RankLog log = log_of(3, {span(Activity::kDown, 0, 3, 0, 0)});
  log.host = "node7";
  log.dropped = 5;
  const RankLog copy = deserialize_rank_log(serialize(log));
  EXPECT_EQ(copy.rank, 3);
  EXPECT_EQ(copy.host, "node7");
  EXPECT_EQ(copy.dropped, 5);
  ASSERT_EQ(copy.spans.size(), 1u);
  EXPECT_EQ(copy.spans[0].end_ns, 3 * kMs);
  EXPECT_THROW(deserialize_rank_log(serialize(log).substr(0, 40)), InternalError);
}

TEST(StepWork, CountsKeysAndPairs) {
  StepWorkCounter counter;
  BatchPlan plan;
  SlotInit init;
  init.history = {7, 8};  // two tokens known from a prefix
  plan.inits.push_back(init);
  PrefillSegment segment;
  segment.begin = 2;
  segment.tokens = {1, 2, 3};
  plan.segments.push_back(segment);
  StepWork work = counter.count(plan);
  EXPECT_EQ(work.kv_tokens(0), 5);
  EXPECT_EQ(work.pairs(0), 3 + 4 + 5);
  EXPECT_EQ(work.pairs(4), 3 + 4 + 4);
  EXPECT_EQ(work.kv_tokens(2), 4);  // rows 2..4 see keys 1..4
  BatchPlan decode;
  decode.decode_slots = {0};
  work = counter.count(decode);
  EXPECT_EQ(work.kv_tokens(0), 6);
  EXPECT_EQ(work.kv_tokens(4), 4);
  EXPECT_EQ(work.pairs(0), 6);
}

TEST(StepWork, AnOpOfHalfTheRowsIsChargedHalf) {
  StepWork step;
  step.segments.push_back({0, 8});  // 8 keys, 36 pairs
  OpWork attend;
  attend.bytes = 100;
  attend.bytes_per_kv_token = 10;
  attend.flops_per_pair = 2;
  attend.rows = 8;
  EXPECT_EQ(attend.in_step(step).bytes, 180);
  EXPECT_EQ(attend.in_step(step).flops, 72);
  attend.rows = 4;
  EXPECT_EQ(attend.in_step(step).bytes, 140);
  EXPECT_EQ(attend.in_step(step).flops, 36);
  attend.rows = 16;  // padding rows of a graph do nothing
  EXPECT_EQ(attend.in_step(step).flops, 72);
}

TEST(Recorder, DropsWhatDoesNotFitAndCountsIt) {
  Recorder recorder(2);
  for (int i = 0; i < 5; ++i) recorder.end(recorder.begin(Activity::kSchedule));
  EXPECT_EQ(recorder.spans().size(), 2u);
  EXPECT_EQ(recorder.dropped(), 3);
}

}  // namespace
}  // namespace tandem::runtime
