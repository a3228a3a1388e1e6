// Every page: its address (after /ui), its file, and where it stands in the navigation.
//
//   nav: [group, icon]   no `nav`: reached from other pages alone
//   role                 who sees it in the navigation; everybody who is signed in otherwise
const page = (name) => () => import(`./pages/${name}.js`);

export const ROUTES = [
  { path: "/", title: "Overview", nav: ["Cluster", "home"], load: page("overview") },
  { path: "/nodes", title: "Nodes", nav: ["Cluster", "node"], load: page("nodes") },
  { path: "/nodes/:id", title: "Node", load: page("node") },
  { path: "/workers", title: "Workers", nav: ["Cluster", "worker"], load: page("workers") },
  { path: "/workers/:id", title: "Worker", load: page("worker") },
  { path: "/events", title: "Events and alerts", nav: ["Cluster", "bell"], load: page("events") },
  { path: "/tasks", title: "Tasks", nav: ["Work", "task"], load: page("tasks") },
  { path: "/tasks/:id", title: "Task", load: page("task") },
  { path: "/submit", title: "Submit", nav: ["Work", "plus"], role: "submit", load: page("submit") },
  { path: "/queues", title: "Queues", nav: ["Work", "queue"], load: page("queues") },
  { path: "/dead-letters", title: "Dead letters", nav: ["Work", "dead"], load: page("dead") },
  { path: "/schedules", title: "Schedules", nav: ["Work", "clock"], load: page("schedules") },
  { path: "/schedules/:id", title: "Schedule", load: page("schedule") },
  { path: "/models", title: "Models", nav: ["Work", "model"], load: page("models") },
  { path: "/models/:id", title: "Model", load: page("model") },
  { path: "/usage", title: "Usage", nav: ["More", "meter"], load: page("usage") },
  { path: "/simulate", title: "Simulate", nav: ["More", "simulate"], load: page("simulate") },
  { path: "/keys", title: "Keys and tokens", nav: ["More", "key"], role: "admin", load: page("keys") },
];

export const GROUPS = ["Cluster", "Work", "More"];
