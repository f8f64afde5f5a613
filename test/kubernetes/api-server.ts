// Starts a real kube-apiserver with a real etcd for a test, on loopback, with TLS and RBAC. The executable is found in PATH,
// or in a cache outside the repository, where it is built once as an ordinary Go module.
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import { findOrBuild, ProgramsMissing } from "../../src/lab/kubernetes/programs.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { delay } from "../../src/lib/retry.ts";
import { freePorts } from "../support/free-port.ts";

/** Path of the executable, or why there is none. */
export async function findApiServer(): Promise<{ readonly path: string } | { readonly missing: string }> {
  try {
    return { path: await findOrBuild("kube-apiserver", openTerminal()) };
  } catch (error) {
    if (error instanceof ProgramsMissing) return { missing: error.message };
    throw error;
  }
}

export interface ApiServer extends AsyncDisposable {
  readonly url: string;
  readonly folder: string;
  /** Kubeconfig of a cluster administrator. */
  readonly kubeconfig: string;
  readonly adminToken: string;
  /** PEM of the server's certificate authority. */
  readonly ca: string;
  readonly etcdUrl: string;
  /** One line of JSON per request, if enabled. */
  readonly auditLog: string;
  /** Stops and starts the API server; its data is kept. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Suspends the server: connections stay open, but requests are not answered. */
  freeze(): void;
  thaw(): void;
  /** Lets the process exit although the server runs. */
  unref(): void;
}

/** Logs user, request and answer, but not the bodies. */
const AUDIT_POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  // A watch is logged when it starts and when it ends, other requests once.
  rules: [
    { level: "Metadata", verbs: ["watch"] },
    { level: "Metadata", omitStages: ["ResponseStarted"] },
  ],
};

class ServerEnded extends Error {
  override readonly name = "ServerEnded";
}

interface ApiServerOptions {
  readonly audit?: boolean;
  /** Additional arguments; receives the server's folder. */
  readonly flags?: readonly string[] | ((folder: string) => readonly string[]);
}

/** Retries with other ports, because another process may take a free port before the server listens. */
export async function startApiServer(program: string, options: ApiServerOptions = {}): Promise<ApiServer> {
  for (let attempt = 1; ; attempt++)
    try {
      return await tryToStart(program, options);
    } catch (error) {
      if (attempt >= 3 || !(error instanceof ServerEnded)) throw error;
    }
}

async function tryToStart(program: string, options: ApiServerOptions): Promise<ApiServer> {
  const folder = mkdtempSync(join(tmpdir(), "kube-test-"));
  const [etcdPort, peerPort, port] = await freePorts(3);
  const adminToken = randomBytes(16).toString("hex");
  writeFileSync(join(folder, "tokens.csv"), `${adminToken},admin,admin,system:masters\n`, { mode: 0o600 });
  execFileSync("openssl", ["genrsa", "-out", join(folder, "sa.key"), "2048"], { stdio: "ignore" });
  const etcdUrl = `http://127.0.0.1:${etcdPort}`;
  const etcd = spawn(
    "etcd",
    [
      "--data-dir",
      join(folder, "etcd"),
      "--listen-client-urls",
      etcdUrl,
      "--advertise-client-urls",
      etcdUrl,
      "--listen-peer-urls",
      `http://127.0.0.1:${peerPort}`,
      "--unsafe-no-fsync",
      "--log-level",
      "error",
    ],
    { stdio: "ignore" },
  );
  writePid(folder, "etcd", etcd);
  let server: ChildProcess | undefined;
  const url = `https://127.0.0.1:${port}`;
  const caFile = join(folder, "certs/apiserver.crt");
  const auditLog = join(folder, "audit.log");
  writeFileSync(join(folder, "audit.json"), JSON.stringify(AUDIT_POLICY));
  const audit = [
    `--audit-policy-file=${join(folder, "audit.json")}`,
    `--audit-log-path=${auditLog}`,
    "--audit-log-mode=blocking",
  ];
  const start = async () => {
    server = spawn(
      program,
      [
        `--etcd-servers=${etcdUrl}`,
        `--secure-port=${port}`,
        "--bind-address=127.0.0.1",
        `--cert-dir=${join(folder, "certs")}`,
        "--authorization-mode=RBAC",
        `--token-auth-file=${join(folder, "tokens.csv")}`,
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        `--service-account-key-file=${join(folder, "sa.key")}`,
        `--service-account-signing-key-file=${join(folder, "sa.key")}`,
        "--disable-admission-plugins=ServiceAccount",
        "--runtime-config=api/all=true",
        "--allow-privileged=true",
        "--v=0",
        ...(options.audit === true ? audit : []),
        ...(typeof options.flags === "function" ? options.flags(folder) : (options.flags ?? [])),
      ],
      // Otherwise the server would spend half of its start on garbage collection.
      { stdio: "ignore", env: { ...process.env, GOGC: "400" } },
    );
    writePid(folder, "apiserver", server);
    await untilReady(url, adminToken, { etcd, server });
  };
  const stop = async () => {
    if (server !== undefined) await end(server);
    server = undefined;
  };
  const guard = guardFolder(folder);
  const dispose = async () => {
    for (const child of [server, etcd]) if (child !== undefined) await end(child, "SIGKILL"); // its data is not needed
    guard.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await start();
  } catch (error) {
    await dispose();
    throw error;
  }
  const ca = readFileSync(caFile, "utf8");
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, kubeconfigText(url, ca, adminToken), { mode: 0o600 });
  return {
    url,
    folder,
    kubeconfig,
    adminToken,
    ca,
    etcdUrl,
    auditLog,
    start,
    stop,
    freeze: () => {
      if (server?.pid === undefined) return;
      server.kill("SIGSTOP");
      while (!hasStopped(server.pid)); // its threads stop at different times
    },
    thaw: () => void server?.kill("SIGCONT"),
    unref: () => {
      for (const child of [server, etcd]) child?.unref();
    },
    [Symbol.asyncDispose]: dispose,
  };
}

function hasStopped(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((task) =>
    /\) [TtZX] /.test(readFileSync(`/proc/${pid}/task/${task}/stat`, "utf8")),
  );
}

/** Starts a shell that waits for the end of this process, kills the programs whose PIDs are in the folder, and deletes it. */
function guardFolder(folder: string): ChildProcess {
  const script = 'read _; cat "$0"/*.pid | xargs -r kill -KILL; rm -rf "$0"';
  const guard = spawn("sh", ["-c", script, folder], { stdio: ["pipe", "ignore", "ignore"], detached: true });
  guard.unref();
  return guard;
}
const writePid = (folder: string, name: string, { pid }: ChildProcess): void =>
  writeFileSync(join(folder, `${name}.pid`), `${pid ?? ""}\n`);

export function kubeconfigText(url: string, ca: string, token: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "test",
    clusters: [
      { name: "test", cluster: { server: url, "certificate-authority-data": Buffer.from(ca).toString("base64") } },
    ],
    users: [{ name: "test", user: { token } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "test" } }],
  });
}

/** Takes two seconds on an idle machine, and minutes if all tests run at once. */
const READY_WITHIN_MS = 400_000;

async function untilReady(
  url: string,
  token: string,
  { etcd, server }: { readonly etcd: ChildProcess; readonly server: ChildProcess },
): Promise<void> {
  const deadline = performance.now() + READY_WITHIN_MS;
  while (performance.now() < deadline) {
    if (etcd.exitCode !== null) throw new ServerEnded(`etcd ended with ${etcd.exitCode}`);
    if (server.exitCode !== null) throw new ServerEnded(`kube-apiserver ended with ${server.exitCode}`);
    try {
      const answer = await fetch(`${url}/readyz`, {
        headers: { authorization: `Bearer ${token}` },
        tls: { rejectUnauthorized: false },
      });
      if (answer.ok) return;
    } catch {
      // not listening yet
    }
    await delay(50);
  }
  throw new Error(`kube-apiserver did not become ready within ${READY_WITHIN_MS / 1000} s`);
}

/** Sends SIGTERM, and SIGKILL soon after, because the API server exits slowly. */
async function end(child: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.ref();
  child.kill(signal);
  const timer = setTimeout(() => child.kill("SIGKILL"), 500);
  await gone;
  clearTimeout(timer);
}
