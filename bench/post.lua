-- wrk: POST the file $BODY with the key $KEY, report the run as one line of JSON
local file = io.open(os.getenv("BODY"), "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer " .. os.getenv("KEY")
file:close()

function done(summary, latency, requests)
  local failed = summary.errors
  io.write(string.format('\n{"requests": %d, "seconds": %f, "errors": %d, "p50_ms": %f, "p99_ms": %f}\n',
    summary.requests, summary.duration / 1e6, failed.status + failed.connect + failed.read + failed.write + failed.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
