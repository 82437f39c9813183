/* SHOW ENGINE MYRIAD STATUS and the status variables Myriad_*. */
#include "status.h"
#include "session.h"
#include <deque>
#include <string>
#include <vector>

namespace {

void append(void *arg, const char *text, size_t length) { static_cast<std::string *>(arg)->append(text, length); }

/* The core names its counters; the server wants an array that outlives the call, so each connection's is on its THD. */
struct Metric {
  std::string name;
  ulonglong value;
};

void add_metric(void *arg, const char *name, uint64_t value, bool) {
  static_cast<std::deque<Metric> *>(arg)->push_back({name, value});
}

int show_metrics(MYSQL_THD thd, struct st_mysql_show_var *var, void *, struct system_status_var *, enum enum_var_type) {
  std::deque<Metric> metrics;
  if (myriad_core) myriad_metrics(myriad_core, add_metric, &metrics);
  auto *list =
      static_cast<st_mysql_show_var *>(thd_calloc(thd, unsigned(sizeof(st_mysql_show_var) * (metrics.size() + 1))));
  var->type = SHOW_ARRAY;
  var->value = list;
  if (!list) return 1;
  for (const Metric &metric : metrics) {
    auto *value = static_cast<ulonglong *>(thd_alloc(thd, sizeof(ulonglong)));
    char *name = thd_strmake(thd, metric.name.data(), unsigned(metric.name.size()));
    if (!value || !name) return 1;
    *value = metric.value;
    list->name = name;
    list->value = value;
    list->type = SHOW_ULONGLONG;
    list++;
  }
  return 0;
}

}  // namespace

struct st_mysql_show_var myriad_status_variables[] = {{"Myriad", reinterpret_cast<void *>(&show_metrics), SHOW_FUNC},
                                                      {nullptr, nullptr, SHOW_UNDEF}};

bool myriad_show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type stat) {
  if (stat != HA_ENGINE_STATUS || !myriad_core) return false;
  std::string text;
  myriad_status_text(myriad_core, append, &text);
  return print(thd, STRING_WITH_LEN("MYRIAD"), STRING_WITH_LEN(""), text.data(), text.size());
}
