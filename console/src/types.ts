/** What the API answers. Types of its description are written by `types.mjs`; what event streams and plots are of is below. */
import type { Diagnosis, PulledMessage, PushReport } from "./wire";

export type {
  Binding,
  DryRun,
  Issuer,
  Line,
  Membership,
  Offsets,
  Project,
  ProjectUsage,
  PushAttempt,
  PushConfig,
  ReadMessage,
  ReceivedMessage,
  Registration,
  Revision,
  Right,
  Schema,
  ServiceDiagnosis,
  Status,
  Subscription,
  Token,
  Topic,
  UsageReport,
  User,
  VaMetrics,
} from "./wire";
export type Doctor = Diagnosis;
export type PushStatus = PushReport;
export type Message = PulledMessage & { orderingKey?: string };

export type Samples = (number | null)[];

/** Of `GET /projects/P:history`. */
export interface History {
  interval: number;
  start: string;
  end: string;
  project?: { published: Samples; publishedBytes: Samples; delivered: Samples; lag: Samples };
  topics: Record<string, { published: Samples; publishedBytes: Samples }>;
  subscriptions: Record<string, { delivered: Samples; lag: Samples; oldestUnackedSeconds: Samples }>;
}

/** An event `counts` of `GET /projects/P:watch`. */
export interface Counts {
  time: string;
  topics: Record<string, { messages: number; bytes: number }>;
  subscriptions: Record<string, Standing>;
}

interface Standing {
  current: number;
  end: number;
  lag: number;
  oldestUnackedSeconds?: number;
  outstanding?: number;
  push?: string;
}
