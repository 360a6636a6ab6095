//! A model's parameters, by their names in a checkpoint.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

use crate::Gpt;

/// One parameter, as [`Gpt::parameters`] lists it.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// GPT-2's name, such as `h.0.attn.c_attn.weight`.
    pub name: String,
    /// The key of its gradient in burn.
    pub id: ParamId,
    /// Sizes, one or two.
    pub shape: Vec<usize>,
}

/// Callback that receives a parameter's name, shape and values.
pub type ReadParameter<'a> = dyn FnMut(&str, &[usize], Vec<f32>) + 'a;

impl Gpt {
    /// Every parameter in the model's order; a tied head appears once.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut list = Vec::new();
        self.visit(&mut Walk::new(|parameter, _: &dyn Fn() -> Vec<f32>| list.push(parameter)));
        list
    }

    /// Calls `each` with every parameter's name, shape and values, in the model's order.
    pub fn for_each_parameter(&self, each: &mut ReadParameter) {
        self.visit(&mut Walk::new(|parameter: Parameter, values: &dyn Fn() -> Vec<f32>| {
            each(&parameter.name, &parameter.shape, values());
        }));
    }

    /// The model with `mapper` applied to every parameter.
    pub fn map_parameters(self, mapper: &mut impl ParameterMapper) -> Self {
        self.map(&mut Walk::new(mapper))
    }
}

/// Turns a parameter into another of the same shape.
pub trait ParameterMapper {
    /// The new tensor for the parameter `name`; both tensors are without automatic differentiation.
    fn map<const D: usize>(&mut self, name: &str, id: ParamId, tensor: Tensor<D>) -> Tensor<D>;
}

/// A traversal of a model's modules: the current path, and the function for each parameter.
struct Walk<F> {
    path: Vec<String>,
    each: F,
}

impl<F> Walk<F> {
    fn new(each: F) -> Self {
        Self { path: Vec::new(), each }
    }

    /// A matrix's form ([`Matrix`](crate::Matrix)) is an enum that is no part of its name.
    fn enter(&mut self, name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.push(name.to_owned());
        }
    }

    fn exit(&mut self, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.pop();
        }
    }
}

/// Calls `each` with every parameter and a function that reads its values.
impl<F: FnMut(Parameter, &dyn Fn() -> Vec<f32>)> ModuleVisitor for Walk<F> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let shape = param.val().dims().to_vec();
        let parameter = Parameter { name: self.path.join("."), id: param.id, shape };
        (self.each)(parameter, &|| param.val().inner().into_data().iter::<f32>().collect());
    }
}

impl<M: ParameterMapper> ModuleMapper for Walk<&mut M> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, param_mapper) = param.consume();
        let device = tensor.device();
        let mapped = self.each.map(&self.path.join("."), id, tensor.inner());
        #[cfg(feature = "autodiff")]
        let mapped = if device.is_autodiff() { mapped.autodiff().require_grad() } else { mapped };
        #[cfg(not(feature = "autodiff"))]
        let _ = device;
        Param::from_mapped_value(id, mapped, param_mapper)
    }
}
