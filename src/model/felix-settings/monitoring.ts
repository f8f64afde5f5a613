// Declares the settings of health checks, metrics and status reports.
import { hostAddress, port } from "./network-types.ts";
import { choice, durationMap, flag, path, pointerText, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { withSchema } from "./value-type.ts";

const NO_USAGE_REPORTS = "no usage reports are sent";
const metricsHost = withSchema(hostAddress, (f) =>
  f.field(
    f.matching(
      (value) => /^[a-zA-Z0-9:._+-]{1,64}$/.test(value),
      "want an address or host name of at most 64 characters",
    ),
  ),
);

export const monitoringSettings = {
  HealthEnabled: setting("healthEnabled", flag, "false", "Serve `/liveness` and `/readiness`"),
  HealthHost: setting("healthHost", hostAddress, "localhost", "Address on which health is served"),
  HealthPort: setting("healthPort", port, "9099", "Port on which health is served"),
  HealthTimeoutOverrides: setting(
    "healthTimeoutOverrides",
    durationMap,
    "",
    "Time after which a component of Felix that has not reported is unhealthy, by component",
    { isLive: true },
  ),
  PrometheusMetricsEnabled: setting("prometheusMetricsEnabled", flag, "false", "Serve `/metrics`"),
  PrometheusMetricsHost: setting("prometheusMetricsHost", metricsHost, "", "Address on which metrics are served"),
  PrometheusMetricsPort: setting("prometheusMetricsPort", port, "9091", "Port on which metrics are served"),
  PrometheusGoMetricsEnabled: setting("prometheusGoMetricsEnabled", flag, "true", "Metrics of the Go runtime", {
    noEffect: "there is no Go runtime",
  }),
  PrometheusProcessMetricsEnabled: setting(
    "prometheusProcessMetricsEnabled",
    flag,
    "true",
    "Metrics of the process, such as CPU time and memory",
  ),
  PrometheusWireGuardMetricsEnabled: setting(
    "prometheusWireGuardMetricsEnabled",
    flag,
    "true",
    "Metrics of WireGuard peers",
  ),
  PrometheusMetricsCAFile: setting(
    "prometheusMetricsCAFile",
    pointerText,
    "",
    "Certificate authority of clients that read metrics",
  ),
  PrometheusMetricsCertFile: setting(
    "prometheusMetricsCertFile",
    pointerText,
    "",
    "Certificate for metrics. Metrics are served with TLS if the certificate or the key is set",
  ),
  PrometheusMetricsKeyFile: setting("prometheusMetricsKeyFile", pointerText, "", "Private key of that certificate"),
  PrometheusMetricsClientAuth: setting(
    "prometheusMetricsClientAuth",
    choice("RequireAndVerifyClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "NoClientCert"),
    "NoClientCert",
    "Client authentication for metrics, named as in Go's crypto/tls",
  ),
  ReportingIntervalSecs: setting(
    "reportingInterval",
    seconds,
    "30",
    "Interval at which Felix reports its status to the datastore. 0 disables it",
  ),
  ReportingTTLSecs: setting("reportingTTL", seconds, "90", "Time after which the reported status expires"),
  EndpointReportingEnabled: setting(
    "endpointReportingEnabled",
    flag,
    "false",
    "Report the status of endpoints to the datastore",
  ),
  EndpointReportingDelaySecs: setting(
    "endpointReportingDelay",
    seconds,
    "1",
    "Shortest time between two such reports. All endpoints are checked again after 180 times this time",
  ),
  EndpointStatusPathPrefix: setting(
    "endpointStatusPathPrefix",
    path,
    "/var/run/calico",
    "Parent directory of `endpoint-status`, where Felix writes a file per programmed endpoint. `none` disables it",
  ),
  UsageReportingEnabled: setting("usageReportingEnabled", flag, "true", "Send usage reports to the vendor", {
    noEffect: NO_USAGE_REPORTS,
  }),
  UsageReportingInitialDelaySecs: setting(
    "usageReportingInitialDelay",
    seconds,
    "300",
    "Shortest time before the first usage report",
    { noEffect: NO_USAGE_REPORTS },
  ),
  UsageReportingIntervalSecs: setting("usageReportingInterval", seconds, "86400", "Interval of usage reports", {
    noEffect: NO_USAGE_REPORTS,
  }),
};
