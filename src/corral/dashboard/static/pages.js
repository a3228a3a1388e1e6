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
  { path: "/usage", title: "Usage", nav: ["More", "meter"], load: page("usage") },
];

export const GROUPS = ["Cluster", "Work", "More"];
