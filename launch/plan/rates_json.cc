// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/error.h"
#include "launch/plan/rates.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

json::array curve_json(const TimeCurve& curve) {
  json::array points;
  for (const auto& [size, us] : curve.points()) points.push_back(json::array{size, us});
  return points;
}

TimeCurve curve_from(const json::value& value) {
  std::vector<std::pair<double, double>> points;
  for (const json::value& point : value.as_array())
    points.emplace_back(point.as_array().at(0).to_number<double>(),
                        point.as_array().at(1).to_number<double>());
  return TimeCurve(points);
}

json::array matmul_json(const MatmulTimes& times) {
  json::array curves;
  for (const MatmulCurve& curve : times.curves())
    curves.push_back(
        json::object{{"rows", curve.rows}, {"by_weight_bytes", curve_json(curve.by_bytes)}});
  return curves;
}

MatmulTimes matmul_from(const json::value& value) {
  std::vector<MatmulCurve> curves;
  for (const json::value& curve : value.as_array())
    curves.push_back(
        {curve.at("rows").to_number<double>(), curve_from(curve.at("by_weight_bytes"))});
  return MatmulTimes(std::move(curves));
}

DeviceRates rates_from(const json::object& object) {
  const auto number = [&](const char* key) { return object.at(key).to_number<double>(); };
  DeviceRates rates;
  rates.device = object.at("device").as_string().c_str();
  rates.name = object.at("name").as_string().c_str();
  rates.ranks = object.at("ranks").to_number<int>();
  rates.memory_bytes = number("memory_bytes");
  rates.plan_us = number("plan_us");
  rates.read_gb_per_s = number("read_gb_per_s");
  rates.matmul_tflops = number("matmul_tflops");
  rates.column_matmul = matmul_from(object.at("column_matmul_us"));
  rates.row_matmul = matmul_from(object.at("row_matmul_us"));
  rates.decode_attention = curve_from(object.at("decode_attention_us"));
  rates.prefill_attention = curve_from(object.at("prefill_attention_us"));
  rates.elementwise = curve_from(object.at("elementwise_us"));
  rates.all_reduce = curve_from(object.at("all_reduce_us"));
  return rates;
}

bool complete(const DeviceRates& rates) {
  bool ok = rates.ranks > 0 && !rates.decode_attention.empty() &&
            !rates.prefill_attention.empty() && !rates.elementwise.empty() &&
            (rates.ranks == 1 || !rates.all_reduce.empty());
  for (const MatmulTimes* times : {&rates.column_matmul, &rates.row_matmul}) {
    ok &= !times->empty();
    for (const MatmulCurve& curve : times->curves())
      ok &= curve.rows > 0 && !curve.by_bytes.empty();
  }
  return ok;
}

}  // namespace

json::object to_json(const DeviceRates& rates) {
  return {{"device", rates.device},
          {"name", rates.name},
          {"ranks", rates.ranks},
          {"memory_bytes", rates.memory_bytes},
          {"plan_us", rates.plan_us},
          {"read_gb_per_s", rates.read_gb_per_s},
          {"matmul_tflops", rates.matmul_tflops},
          {"column_matmul_us", matmul_json(rates.column_matmul)},
          {"row_matmul_us", matmul_json(rates.row_matmul)},
          {"decode_attention_us", curve_json(rates.decode_attention)},
          {"prefill_attention_us", curve_json(rates.prefill_attention)},
          {"elementwise_us", curve_json(rates.elementwise)},
          {"all_reduce_us", curve_json(rates.all_reduce)}};
}

DeviceRates rates_from_doctor(const std::string& origin, const std::string& text) {
  const std::string what_to_do =
      "; make it with tandem doctor --rates FILE, started on as many ranks as are planned";
  try {
    const json::value value = json::parse(text);
    const json::object* document = value.if_object();
    TANDEM_REQUIRE(document != nullptr && document->contains("rates"), origin,
                   " holds no measured rates", what_to_do);
    DeviceRates rates = rates_from(document->at("rates").as_object());
    TANDEM_REQUIRE(complete(rates), origin, " lacks some of the measured rates", what_to_do);
    rates.origin = origin;
    if (const json::value* machine = document->if_contains("machine"))
      rates.machine = machine->as_object();
    return rates;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw ConfigError(concat(origin, " is not the output of tandem doctor", what_to_do));
  }
}

}  // namespace tandem::launch
