// Serves BGP metrics for Prometheus; each scrape queries BIRD.
import { createServer, type Server } from "node:http";
import type { BirdSession } from "../../bgp/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { type MetricLabels, MetricsRegistry } from "../../lib/metrics.ts";
import { addProcessMetrics } from "../../lib/process/process-metrics.ts";
import { readBirdFacts, type BirdFacts, type Facts } from "./bird-report.ts";
import { readActivePlan } from "./session-evidence.ts";

const STATES = ["Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established", "Close", "Passive", "Down"];
const TYPES = { mesh: "node-to-node mesh", node: "node specific", global: "global", localWorkload: "local workload" };
const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

export interface BgpMetricsOptions {
  readonly port: number;
  /** The empty string means all addresses. */
  readonly host: string;
  readonly log: Logger;
  readonly readFacts?: () => Promise<Facts>;
  readonly onListening?: (port: number) => void;
}

/** Serves `/metrics` until the signal aborts. */
export async function serveBgpMetrics(options: BgpMetricsOptions, signal: AbortSignal): Promise<void> {
  const readFacts =
    options.readFacts ?? (async () => ({ 4: await readWithoutRoutes(4), 6: await readWithoutRoutes(6) }));
  const started = new Date();
  const server: Server = createServer((request, response) => {
    if (request.url?.split("?")[0] !== "/metrics") {
      response.writeHead(404, { connection: "close" }).end();
      return;
    }
    readFacts()
      .then((facts) =>
        response
          .writeHead(200, { "Content-Type": CONTENT_TYPE, connection: "close" })
          .end(renderBgpMetrics(facts, started)),
      )
      .catch((error: unknown) => {
        options.log.warn("could not collect BGP metrics", { error: describeError(error) });
        response.writeHead(500).end();
      });
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  signal.addEventListener("abort", () => resolve(), { once: true });
  server.listen(options.port, options.host === "" ? undefined : options.host, () => {
    const address = server.address();
    options.onListening?.(typeof address === "object" && address !== null ? address.port : options.port);
  });
  try {
    if (!signal.aborted) await promise;
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** The route table may be large, and no metric needs it. */
const readWithoutRoutes = (version: 4 | 6) => readBirdFacts(version, undefined, { routes: false });

function renderBgpMetrics(facts: Facts, started: Date): string {
  const registry = new MetricsRegistry();
  registerBgpMetrics(registry, facts, started);
  return registry.render();
}

export function registerBgpMetrics(registry: MetricsRegistry, facts: Facts, started: Date): void {
  const families = ([4, 6] as const).map((version) => ({ version: String(version), facts: facts[version] }));
  const each = (read: (session: BirdSession) => number) =>
    families.flatMap(({ version, facts: bird }) =>
      knownSessions(bird).map((session): [MetricLabels, number] => [
        {
          ip_version: version,
          peer: session.neighbor ?? session.name,
          type: TYPES[session.kind as keyof typeof TYPES],
        },
        read(session),
      ]),
    );
  const gauge = (name: string, help: string, values: () => Iterable<[MetricLabels, number]>) =>
    registry.collect(name, help, "gauge", values);
  const perBird = (read: (bird: BirdFacts | undefined) => number) => () =>
    families.map(({ version, facts: bird }): [MetricLabels, number] => [{ ip_version: version }, read(bird)]);

  gauge(
    "bird_up",
    "Whether BIRD responds for the IP version.",
    perBird((bird) => Number(bird !== undefined)),
  );
  gauge(
    "bird_graceful_restart",
    "Whether BIRD is recovering from a restart and keeps the kernel's routes unchanged.",
    perBird((bird) => Number(bird?.status.isRecovering === true)),
  );
  gauge("bgp_peers", "Number of BGP sessions by their state.", () =>
    families.flatMap(({ version, facts: bird }) =>
      STATES.map((status): [MetricLabels, number] => [
        { ip_version: version, status },
        knownSessions(bird).filter(({ bgpState }) => bgpState === status).length,
      ]),
    ),
  );
  gauge("bgp_peer_established", "Whether the session with the peer is established.", () =>
    each(({ bgpState }) => Number(bgpState === "Established")),
  );
  gauge("bgp_routes_imported", "Routes accepted from the peer.", () => each(({ imported }) => imported));
  gauge("bgp_routes_exported", "Routes announced to the peer.", () => each(({ exported }) => exported));
  registry.collect("bgp_route_updates_received", "Route updates received from the peer.", "counter", () =>
    each(({ updatesReceived }) => updatesReceived),
  );
  gauge("bgp_plan_problems", "Objects left out of the active BGP configuration.", () => {
    const plan = readActivePlan();
    return plan === undefined ? [] : [[{}, plan.problems.length]];
  });
  addProcessMetrics(registry, started);
}

const knownSessions = (bird: BirdFacts | undefined): readonly BirdSession[] =>
  (bird?.sessions ?? []).filter(({ kind }) => kind !== "other");
