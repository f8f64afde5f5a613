// Metrics of the Linux dataplane's rounds, with Calico's names.
import type { DataplaneMessage } from "../../calc/index.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";

/** Names of messages in Calico's dataplane protocol. */
const NAMES: Readonly<Partial<Record<DataplaneMessage["type"], string>>> = {
  inSync: "InSync",
  poolUpdate: "IPAMPoolUpdate",
  poolRemove: "IPAMPoolRemove",
  vtepUpdate: "VXLANTunnelEndpointUpdate",
  vtepRemove: "VXLANTunnelEndpointRemove",
  wireguardUpdate: "WireguardEndpointUpdate",
  wireguardRemove: "WireguardEndpointRemove",
  globalBgpConfigUpdate: "GlobalBGPConfigUpdate",
  ipSetUpdate: "IPSetUpdate",
  ipSetDeltaUpdate: "IPSetDeltaUpdate",
  ipSetRemove: "IPSetRemove",
};
const protocolName = (type: DataplaneMessage["type"]) => NAMES[type] ?? type.charAt(0).toUpperCase() + type.slice(1);

export interface DataplaneMetrics {
  onMessage(message: DataplaneMessage): void;
  onApplied(round: { readonly seconds: number; readonly ok: boolean; readonly isFirst: boolean }): void;
}

export function dataplaneMetrics(
  registry: MetricsRegistry,
  now: () => number = () => performance.now(),
): DataplaneMetrics {
  const started = now();
  const messages = new Map<DataplaneMessage["type"], number>();
  registry.collect("felix_int_dataplane_messages", "Messages received by the dataplane, by type.", "counter", () =>
    [...messages].map(([type, count]) => [{ type: protocolName(type) }, count]),
  );
  const applyTime = registry.summary(
    "felix_int_dataplane_apply_time_seconds",
    "Duration of a round of changes in seconds.",
  );
  const failures = registry.counter("felix_int_dataplane_failures", "Rounds in which a part failed; it is retried.");
  const batch = registry.summary("felix_int_dataplane_msg_batch_size", "Messages per round.");
  const firstRound = registry.gauge(
    "felix_int_dataplane_initial_resync_time_seconds",
    "Seconds from the start to the end of the first round.",
  );
  failures.add(0);
  firstRound.set(0);
  let messagesSinceRound = 0;
  return {
    onMessage: ({ type }) => {
      messagesSinceRound++;
      messages.set(type, (messages.get(type) ?? 0) + 1);
    },
    onApplied: ({ seconds, ok, isFirst }) => {
      applyTime.observe(seconds);
      if (messagesSinceRound > 0) batch.observe(messagesSinceRound);
      messagesSinceRound = 0;
      if (!ok) failures.add();
      if (isFirst) firstRound.set((now() - started) / 1000);
    },
  };
}
